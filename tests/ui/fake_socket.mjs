// A WebSocket held by a test, which plays the server on it.

/** Every socket that was made, newest last; `parsed` is its URL's query. */
export class FakeSockets {
  made = [];

  create = (url) => {
    const socket = new FakeSocket(url);
    this.made.push(socket);
    return socket;
  };

  get last() {
    return this.made.at(-1);
  }
}

class FakeSocket {
  onmessage = null;
  onclose = null;
  onerror = null;
  closedByClient = false;
  sent = [];

  constructor(url) {
    this.query = Object.fromEntries(new URL(url).searchParams);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.closedByClient = true;
  }

  /** Say frames as the server. */
  say(...frames) {
    for (const frame of frames) this.onmessage?.({ data: JSON.stringify(frame) });
  }

  /** End the connection as the server or the network would. */
  end(code, reason = "") {
    this.onclose?.({ code, reason });
  }

  sentOf(type) {
    return this.sent.filter((frame) => frame.type === type);
  }
}

export const connected = (over = {}) => ({
  type: "connected",
  protocol: "turnwire.v1",
  resource: "conversation",
  epoch: "E1",
  seq: 0,
  from_seq: 1,
  attachment: 1,
  resume: "fresh",
  replayed: 0,
  heartbeat_ms: 20_000,
  limits: { max_frame_bytes: 1_048_576, rate_burst: 20, rate_per_s: 10 },
  ...over,
});

export const snapshot = (over = {}) => ({
  type: "snapshot",
  as_of_seq: 0,
  session: { session_id: "S", metadata: {} },
  messages: [],
  truncated: false,
  running: null,
  queued: [],
  waiting: [],
  last_run: null,
  ...over,
});

export const stored = (sequence, role, content, over = {}) => ({
  message_id: `M${sequence}`,
  sequence,
  role,
  content,
  tool_call_id: null,
  tool_calls: [],
  metadata: {},
  created_at: "2026-01-01T00:00:00Z",
  ...over,
});

/** The frames of one answer, sequenced from `seq`. */
export function answer(requestId, chunks, { seq = 1, runId = "run-1", messageId = "A", sequence = 1 } = {}) {
  const base = { request_id: requestId, run_id: runId };
  const text = { ...base, message_id: messageId };
  const frames = [
    { type: "completion_init", ...base, model: "script/x", continues_run_id: null },
    ...chunks.map((chunk) => ({ type: "llm_text_chunk", ...text, text: chunk })),
    { type: "llm_text_sentence", ...text, index: 0, text: chunks.join("") },
    {
      type: "assistant_message_complete",
      ...text,
      sequence,
      content: chunks.join(""),
      tool_calls: [],
      finish_reason: "stop",
    },
    {
      type: "completion_done",
      ...base,
      finish_reason: "stop",
      usage: { input_tokens: 1, output_tokens: 2, estimated_cost: 0 },
      timing: { ttft_ms: 1, total_ms: 2 },
    },
  ];
  return frames.map((frame, at) => ({ ...frame, seq: seq + at }));
}
