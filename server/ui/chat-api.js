// @ts-check
/**
 * What the page asks over HTTP, and with whose right: the access token of this tab, if one was given.
 *
 * A socket cannot carry a token, so each connection gets a fresh ticket for it, which works once.
 */

const TOKEN = "turnwire.token";
const TIMEOUT_MS = 15_000;
/** A ticket that was got to see whether a token works is used for the next connection, unless it is older. */
const SPARE_MS = 15_000;

/** A call that was refused or did not get through. */
export class ApiError extends Error {
  /** @param {string} code An error code of the server, or `disconnected`. @param {string} message */
  constructor(code, message) {
    super(message || code);
    this.name = "ApiError";
    this.code = code;
  }
}

/** @type {{ticket: string, until: number} | null} */
let spare = null;

/** Whether a token was given in this tab. */
export function signedIn() {
  return token() !== null;
}

/**
 * Try a token, and keep it for this tab if the server takes it.
 *
 * @param {string} given
 * @returns {Promise<void>} Rejects with an {@link ApiError}, `unauthenticated` for a wrong one.
 */
export async function signIn(given) {
  spare = { ticket: await ticketFor(given), until: Date.now() + SPARE_MS };
  sessionStorage.setItem(TOKEN, given);
}

export function signOut() {
  spare = null;
  sessionStorage.removeItem(TOKEN);
}

/** A ticket for one connection; null when no token was given, which a server without sign-in does not need. */
export async function ticket() {
  const kept = spare;
  spare = null;
  if (kept && Date.now() < kept.until) return kept.ticket;
  const held = token();
  return held === null ? null : ticketFor(held);
}

/**
 * @param {"GET" | "POST" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>} The answer's `data`; rejects with an {@link ApiError}.
 */
export function call(method, path, body) {
  return ask(method, path, body, token());
}

/** @param {string} given @returns {Promise<string>} */
async function ticketFor(given) {
  const data = await ask("POST", "/api/ws-ticket", undefined, given);
  if (typeof data?.ticket !== "string") throw new ApiError("internal", "The server gave no ticket.");
  return data.ticket;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {object | undefined} body
 * @param {string | null} held
 */
async function ask(method, path, body, held) {
  /** @type {Record<string, string>} */
  const headers = {};
  // What is no byte cannot be in a header: such a token is a wrong one.
  if (held !== null) headers.authorization = `Bearer ${encodeURI(held) === held ? held : "-"}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  } catch {
    throw new ApiError("disconnected", "The server could not be reached.");
  }
  const told = await answer.json().catch(() => null);
  if (answer.ok && told?.success === true) return told.data;
  const code = String(told?.error?.code ?? (answer.status === 401 ? "unauthenticated" : "internal"));
  if (code === "unauthenticated" && held !== null)
    throw new ApiError(code, "This access token is not accepted.");
  throw new ApiError(code, String(told?.error?.message || `The server answered ${answer.status}.`));
}

/** @returns {string | null} */
function token() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}
