// @ts-check
/** Ids that a client makes: for conversations and requests, and for the tab that it is. */

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const KEY = "turnwire.client_id";

/** A new ULID: 48 bits of time and 80 of chance, 26 characters. */
export function newUlid() {
  let time = Date.now();
  let head = "";
  for (let at = 0; at < 10; at += 1) {
    head = CROCKFORD[time % 32] + head;
    time = Math.floor(time / 32);
  }
  const chance = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return head + Array.from(chance, (byte) => CROCKFORD[byte % 32]).join("");
}

/** @param {string} text Whether it is a ULID in its canonical form. */
export function isUlid(text) {
  return /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(text);
}

/** @type {string | null} */
let tab = null;

/**
 * The id of this tab, the same after a reload, so that a tab never finds its own conversation held by
 * itself.
 *
 * While the page lives the id is not in `sessionStorage`, which a browser copies into a duplicated tab:
 * two living tabs with one id would throw each other out.
 *
 * @returns {string}
 */
export function tabClientId() {
  if (tab !== null) return tab;
  const store = storage();
  tab = store?.getItem(KEY) ?? newUlid();
  store?.removeItem(KEY);
  globalThis.addEventListener?.("pagehide", () => store?.setItem(KEY, /** @type {string} */ (tab)));
  globalThis.addEventListener?.("pageshow", () => store?.removeItem(KEY));
  return tab;
}

/** @returns {Storage | null} Null outside of a browser, or where storage is forbidden. */
function storage() {
  try {
    return typeof document === "undefined" ? null : globalThis.sessionStorage;
  } catch {
    return null;
  }
}
