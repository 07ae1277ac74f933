// @ts-check
/**
 * The state of a conversation as a person sees it, made from frames by one pure function.
 *
 * It knows nothing of sockets: whoever applies every sequenced frame once and in order, and a snapshot
 * when there is one, has the right state.
 */

/** @typedef {import("./turnwire-frames.js").ServerFrame} ServerFrame */
/** @typedef {import("./turnwire-frames.js").Snapshot} Snapshot */
/** @typedef {import("./turnwire-frames.js").ToolCall} ToolCall */
/** @typedef {import("./turnwire-frames.js").MessageView} MessageView */
/** @typedef {import("./turnwire-frames.js").FinishReason} FinishReason */
/** @typedef {import("./turnwire-frames.js").Fault} Fault */
/** @typedef {import("./turnwire-frames.js").CompletionDone} CompletionDone */

/**
 * A tool call that the model is still writing.
 * @typedef {{id: string | null, name: string, arguments: string}} ToolDraft
 */

/**
 * - `sequence`: the place in the stored history; null while it streams, and after a failure whose
 *   place was not told.
 * - `spoken`: the complete sentences so far, one after the other; `content` may be ahead of it.
 * - `requestId`: of the append that made it, or of the completion that streams it, where known.
 *
 * @typedef {object} Message
 * @property {string} messageId
 * @property {number | null} sequence
 * @property {import("./turnwire-frames.js").Role} role
 * @property {string} content
 * @property {string} thinking
 * @property {string} spoken
 * @property {number} sentences
 * @property {string | null} toolCallId
 * @property {readonly ToolCall[]} toolCalls
 * @property {readonly ToolDraft[]} drafts
 * @property {boolean} streaming
 * @property {FinishReason | null} finishReason
 * @property {string | null} requestId
 * @property {string | null} runId
 */

/**
 * @typedef {object} Running
 * @property {string} requestId
 * @property {string} runId
 * @property {string | null} model Null after a snapshot, which does not tell it.
 * @property {Fault | null} error
 */

/**
 * @typedef {object} LastRun
 * @property {string} runId
 * @property {string | null} requestId
 * @property {FinishReason} finishReason
 * @property {Fault | null} error
 * @property {import("./turnwire-frames.js").Usage | null} usage
 * @property {import("./turnwire-frames.js").Timing | null} timing
 * @property {string | null} model
 */

/**
 * @typedef {object} View
 * @property {readonly Message[]} messages Oldest first.
 * @property {boolean} truncated Whether older messages exist that are not here.
 * @property {Running | null} running
 * @property {readonly string[]} queued Request ids of completions that wait for their turn.
 * @property {readonly ToolCall[]} waiting Tool calls that wait for a person.
 * @property {LastRun | null} lastRun
 */

/** @type {View} */
export const EMPTY = Object.freeze({
  messages: Object.freeze([]),
  truncated: false,
  running: null,
  queued: Object.freeze([]),
  waiting: Object.freeze([]),
  lastRun: null,
});

/**
 * The state after one frame; frames of unknown types leave it as it is.
 *
 * @param {View} view
 * @param {ServerFrame} frame
 * @returns {View}
 */
export function reduce(view, frame) {
  switch (frame.type) {
    case "connected":
      return frame.resume === "fresh" ? EMPTY : view;
    case "snapshot":
      return fromSnapshot(frame);
    case "message_appended":
      return place(view, {
        ...blank(frame.message_id, frame.role),
        sequence: frame.sequence,
        content: frame.content,
        toolCallId: frame.tool_call_id ?? null,
        requestId: frame.request_id ?? null,
      });
  }
  // An earlier outcome, told again to whoever asked again: the state has it already.
  return frame.repeated ? view : step(view, frame);
}

/** @param {View} view @param {ServerFrame} frame @returns {View} */
function step(view, frame) {
  switch (frame.type) {
    case "completion_queued":
      return { ...view, queued: [...without(view.queued, frame.request_id), frame.request_id ?? ""] };
    case "completion_init":
      return {
        ...view,
        queued: without(view.queued, frame.request_id),
        running: { requestId: frame.request_id ?? "", runId: frame.run_id, model: frame.model, error: null },
      };
    case "llm_text_chunk":
      return stream(view, frame, (message) => ({ content: message.content + frame.text }));
    case "llm_thinking_chunk":
      return stream(view, frame, (message) => ({ thinking: message.thinking + frame.text }));
    case "llm_text_sentence":
      return stream(view, frame, (message) => ({
        spoken: message.spoken + frame.text,
        sentences: frame.index + 1,
      }));
    case "tool_call_chunk":
      return stream(view, frame, (message) => ({ drafts: drafted(message.drafts, frame) }));
    case "tool_call":
      return withCall(view, frame);
    case "tool_confirmation_processed":
      return decided(view, frame);
    case "assistant_message_complete":
      return place(view, {
        ...find(view, frame.message_id, frame.run_id),
        sequence: frame.sequence,
        content: frame.content,
        toolCalls: frame.tool_calls ?? [],
        drafts: [],
        streaming: false,
        finishReason: frame.finish_reason,
      });
    case "stop_completion":
      return frame.message_id === null
        ? view
        : place(view, {
            ...find(view, frame.message_id, frame.run_id),
            sequence: frame.sequence,
            content: frame.partial_text,
            drafts: [],
            streaming: false,
            finishReason: "stopped",
          });
    case "error":
      return failed(view, frame);
    case "completion_done":
      return done(view, frame);
    default:
      return view;
  }
}

/** @param {Snapshot} frame @returns {View} */
function fromSnapshot(frame) {
  /** @type {View} */
  let view = {
    ...EMPTY,
    messages: frame.messages.map(fromStore),
    truncated: frame.truncated ?? false,
    queued: frame.queued ?? [],
    waiting: (frame.waiting ?? []).filter(waits),
    lastRun: frame.last_run
      ? {
          runId: frame.last_run.run_id,
          requestId: frame.last_run.request_id,
          finishReason: finishOf(frame.last_run),
          error: frame.last_run.error,
          usage: null,
          timing: null,
          model: null,
        }
      : null,
  };
  const running = frame.running;
  if (!running) return view;
  view = {
    ...view,
    running: { requestId: running.request_id, runId: running.run_id, model: null, error: null },
  };
  if (running.message_id === null) return view;
  const stored = view.messages.find((message) => message.messageId === running.message_id);
  if (stored && stored.sequence !== null) return view;
  return place(view, {
    ...blank(running.message_id, "assistant"),
    content: running.text,
    thinking: running.thinking,
    spoken: running.text.slice(0, running.text.length - running.sentence.length),
    sentences: running.next_sentence_index,
    toolCalls: running.tool_calls ?? [],
    streaming: true,
    requestId: running.request_id,
    runId: running.run_id,
  });
}

/**
 * How a run ended; one whose server died was not told a reason.
 *
 * @param {import("./turnwire-frames.js").LastRunView} run
 * @returns {FinishReason}
 */
export function finishOf(run) {
  return run.finish_reason ?? (run.status === "failed" ? "error" : "interrupted");
}

/** A message as it is stored. @param {MessageView} stored @returns {Message} */
export function fromStore(stored) {
  const reason = stored.metadata?.finish_reason;
  return {
    ...blank(stored.message_id, stored.role),
    sequence: stored.sequence,
    content: stored.content,
    spoken: stored.content,
    toolCallId: stored.tool_call_id ?? null,
    toolCalls: stored.tool_calls ?? [],
    finishReason: typeof reason === "string" ? /** @type {FinishReason} */ (reason) : null,
  };
}

/** @param {string} messageId @param {Message["role"]} role @returns {Message} */
function blank(messageId, role) {
  return {
    messageId,
    sequence: null,
    role,
    content: "",
    thinking: "",
    spoken: "",
    sentences: 0,
    toolCallId: null,
    toolCalls: [],
    drafts: [],
    streaming: false,
    finishReason: null,
    requestId: null,
    runId: null,
  };
}

/** @param {View} view @param {string} messageId @param {string | null} runId @returns {Message} */
function find(view, messageId, runId) {
  const known = view.messages.findLast((message) => message.messageId === messageId);
  return known ?? { ...blank(messageId, "assistant"), runId };
}

/**
 * Where a message belongs. One that streams is the newest; one that ended without telling its sequence
 * stays where it is.
 *
 * @param {Message} message
 */
function order(message) {
  return message.sequence ?? (message.streaming ? Infinity : -1);
}

/**
 * Put a message in its place, once, in the order of the stored history.
 *
 * @param {View} view
 * @param {Message} message
 * @returns {View}
 */
function place(view, message) {
  const others = view.messages.filter((other) => other.messageId !== message.messageId);
  if (view.truncated && others.length > 0 && order(message) < order(others[0])) return view;
  let at = others.length;
  while (at > 0 && order(others[at - 1]) > order(message)) at -= 1;
  others.splice(at, 0, message);
  return { ...view, messages: others };
}

/**
 * Change the message that is being streamed, which its first frame begins.
 *
 * @param {View} view
 * @param {{message_id: string, run_id: string, request_id?: string}} frame
 * @param {(message: Message) => Partial<Message>} change
 * @returns {View}
 */
function stream(view, frame, change) {
  const at = view.messages.findLastIndex((message) => message.messageId === frame.message_id);
  if (at < 0) {
    const begun = {
      ...blank(frame.message_id, "assistant"),
      streaming: true,
      requestId: frame.request_id ?? null,
      runId: frame.run_id,
    };
    return { ...view, messages: [...view.messages, { ...begun, ...change(begun) }] };
  }
  const messages = view.messages.slice();
  messages[at] = { ...messages[at], ...change(messages[at]) };
  return { ...view, messages };
}

/**
 * @param {readonly ToolDraft[]} drafts
 * @param {import("./turnwire-frames.js").ToolCallChunk} frame
 * @returns {ToolDraft[]}
 */
function drafted(drafts, frame) {
  const next = drafts.slice();
  const draft = next[frame.index] ?? { id: null, name: "", arguments: "" };
  next[frame.index] = {
    id: frame.id ?? draft.id,
    name: draft.name || (frame.function.name ?? ""),
    arguments: draft.arguments + frame.function.arguments,
  };
  return next;
}

/** @param {ToolCall} call */
function waits(call) {
  return (
    call.execution_state === "waiting" &&
    (call.confirmation_state === "pending" || call.confirmation_state === "awaiting_input")
  );
}

/** @param {View} view @param {import("./turnwire-frames.js").ToolCallFrame} frame @returns {View} */
function withCall(view, frame) {
  const { type: _type, seq: _seq, request_id: _request, repeated: _repeated, ...call } = frame;
  const others = view.waiting.filter((other) => other.tool_call_id !== call.tool_call_id);
  const waiting = waits(call) ? [...others, call] : others;
  const known = view.messages.some((message) => message.messageId === call.message_id);
  // A call of a message older than the window: only that it waits, or no longer does, is shown.
  if (!known && view.truncated && view.running?.runId !== call.run_id) return { ...view, waiting };
  return stream({ ...view, waiting }, frame, (message) => {
    const at = message.toolCalls.findIndex((other) => other.tool_call_id === call.tool_call_id);
    const toolCalls = message.toolCalls.slice();
    toolCalls.splice(at < 0 ? toolCalls.length : at, at < 0 ? 0 : 1, call);
    return { toolCalls, drafts: [] };
  });
}

/**
 * @param {View} view
 * @param {import("./turnwire-frames.js").ToolConfirmationProcessed} frame
 * @returns {View}
 */
function decided(view, frame) {
  /** @param {ToolCall} call */
  const settle = (call) =>
    call.tool_call_id === frame.tool_call_id
      ? { ...call, confirmation_state: frame.confirmation_state }
      : call;
  return {
    ...view,
    waiting: view.waiting.map(settle).filter(waits),
    messages: view.messages.map((message) =>
      message.toolCalls.some((call) => call.tool_call_id === frame.tool_call_id)
        ? { ...message, toolCalls: message.toolCalls.map(settle) }
        : message,
    ),
  };
}

/** @param {View} view @param {import("./turnwire-frames.js").ErrorFrame} frame @returns {View} */
function failed(view, frame) {
  if (frame.seq === undefined) return view; // a refusal: it concerns the request, not the conversation
  const error = { code: frame.code, message: frame.message };
  return view.running && view.running.requestId === frame.request_id
    ? { ...view, running: { ...view.running, error } }
    : { ...view, queued: without(view.queued, frame.request_id) };
}

/** @param {View} view @param {CompletionDone} frame @returns {View} */
function done(view, frame) {
  const queued = without(view.queued, frame.request_id);
  const runId = frame.run_id;
  if (runId === null) return { ...view, queued };
  const running = view.running?.runId === runId ? view.running : null;
  return {
    ...view,
    queued,
    running: running ? null : view.running,
    messages: view.messages.map((message) =>
      message.streaming && message.runId === runId
        ? { ...message, streaming: false, drafts: [], finishReason: frame.finish_reason }
        : message,
    ),
    lastRun: {
      runId,
      requestId: frame.request_id ?? null,
      finishReason: frame.finish_reason,
      error: running?.error ?? null,
      usage: frame.usage,
      timing: frame.timing,
      model: running?.model ?? null,
    },
  };
}

/** @param {readonly string[]} ids @param {string | undefined} id */
function without(ids, id) {
  return ids.filter((other) => other !== id);
}
