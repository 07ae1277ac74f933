// @ts-check
/** Tabs of one browser tell each other when they let go of a conversation, so that the next can go on at once. */

const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("turnwire");

/** @param {string} id This tab does not hold the conversation any more. */
export function letGo(id) {
  channel?.postMessage({ free: id });
}

/** @param {(id: string) => void} listener Told of conversations that another tab let go of. */
export function onFree(listener) {
  channel?.addEventListener("message", (event) => {
    if (typeof event.data?.free === "string") listener(event.data.free);
  });
}
