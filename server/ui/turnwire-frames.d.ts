// The frames of a conversation's socket, as they are on the wire, for type checkers only.
// A test compares the names here with the server's own structs.

export type FinishReason = "stop" | "tool_calls" | "length" | "stopped" | "error" | "interrupted";
export type Role = "user" | "assistant" | "system" | "tool";
export type ConfirmationState = "not_required" | "pending" | "accepted" | "rejected" | "awaiting_input";
export type ExecutionState = "waiting" | "running" | "succeeded" | "failed" | "cancelled";

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  estimated_cost: number;
}

export interface Timing {
  ttft_ms: number | null;
  total_ms: number;
}

export interface Fault {
  code: string;
  message: string;
}

export interface ToolCall {
  run_id: string;
  message_id: string;
  tool_call_id: string;
  name: string;
  arguments: string;
  arguments_sha256: string;
  confirmation_state: ConfirmationState;
  execution_state: ExecutionState;
  result: string | null;
  error: Fault | null;
  sequence: number | null;
}

export interface MessageView {
  message_id: string;
  sequence: number;
  role: Role;
  content: string;
  tool_call_id: string | null;
  tool_calls: ToolCall[];
  metadata: Record<string, unknown>;
  created_at: string;
}

export interface RunningView {
  request_id: string;
  run_id: string;
  message_id: string | null;
  text: string;
  thinking: string;
  next_sentence_index: number;
  sentence: string;
  tool_calls: ToolCall[];
}

export interface LastRunView {
  run_id: string;
  request_id: string | null;
  status: string;
  finish_reason: FinishReason | null;
  error: Fault | null;
}

export interface Limits {
  max_frame_bytes: number;
  rate_burst: number;
  rate_per_s: number;
  [name: string]: number;
}

interface Base {
  seq?: number;
  request_id?: string;
  repeated?: boolean;
}

export interface Connected extends Base {
  type: "connected";
  protocol: string;
  resource: string;
  epoch: string;
  seq: number;
  from_seq: number;
  attachment: number;
  resume: "fresh" | "replayed" | "snapshot";
  replayed: number;
  heartbeat_ms: number;
  limits: Limits;
}

export interface Snapshot extends Base {
  type: "snapshot";
  as_of_seq: number;
  session: { session_id: string; metadata: Record<string, unknown>; [name: string]: unknown };
  messages: MessageView[];
  truncated: boolean;
  running: RunningView | null;
  queued: string[];
  waiting: ToolCall[];
  last_run: LastRunView | null;
}

export interface Pong extends Base {
  type: "pong";
  t: unknown;
}

export interface Draining extends Base {
  type: "draining";
  reconnect_after_ms: number;
}

export interface ErrorFrame extends Base {
  type: "error";
  code: string;
  message: string;
  retryable: boolean;
  retry_after_ms: number | null;
  details: Record<string, unknown>;
  run_id: string | null;
}

export interface MessageAppended extends Base {
  type: "message_appended";
  message_id: string;
  sequence: number;
  role: Role;
  content: string;
  tool_call_id: string | null;
  origin: "socket" | "rest" | "cli";
}

export interface CompletionQueued extends Base {
  type: "completion_queued";
  position: number;
}

export interface CompletionInit extends Base {
  type: "completion_init";
  run_id: string;
  model: string;
  continues_run_id: string | null;
}

export interface Chunk extends Base {
  type: "llm_text_chunk" | "llm_thinking_chunk";
  run_id: string;
  message_id: string;
  text: string;
}

export interface Sentence extends Base {
  type: "llm_text_sentence";
  run_id: string;
  message_id: string;
  index: number;
  text: string;
}

export interface ToolCallChunk extends Base {
  type: "tool_call_chunk";
  run_id: string;
  message_id: string;
  index: number;
  id: string | null;
  function: { name: string | null; arguments: string };
}

export interface ToolCallFrame extends Base, ToolCall {
  type: "tool_call";
}

export interface AssistantMessageComplete extends Base {
  type: "assistant_message_complete";
  run_id: string;
  message_id: string;
  sequence: number;
  content: string;
  tool_calls: ToolCall[];
  finish_reason: FinishReason;
}

export interface CompletionDone extends Base {
  type: "completion_done";
  run_id: string | null;
  finish_reason: FinishReason;
  usage: Usage;
  timing: Timing;
}

export interface CompletionStopped extends Base {
  type: "stop_completion";
  run_id: string | null;
  message_id: string | null;
  sequence: number | null;
  partial_text: string;
  stop_request_id: string | null;
}

export interface ToolConfirmationProcessed extends Base {
  type: "tool_confirmation_processed";
  tool_call_id: string;
  decision: "accept" | "reject";
  confirmation_state: ConfirmationState;
  arguments_sha256: string;
}

export interface CanvasNode {
  id: string;
  type: string;
  position: { x: number; y: number };
  size: { width: number; height: number } | null;
  data: Record<string, unknown>;
  version: number;
  created_by: { run_id: string; tool_call_id: string } | null;
}

export interface CanvasEdge {
  id: string;
  source: string;
  target: string;
  type: string;
  data: Record<string, unknown>;
  version: number;
  created_by: { run_id: string; tool_call_id: string } | null;
}

export interface CanvasChanged extends Base {
  type: "canvas_changed";
  op: "create" | "update" | "delete";
  nodes: CanvasNode[];
  edges: CanvasEdge[];
  deleted_node_ids: string[];
  deleted_edge_ids: string[];
  canvas_version: number;
}

export interface CanvasBatchResult extends Base {
  type: "canvas_batch_result";
  success: boolean;
  temp_id_mapping: Record<string, string>;
  nodes: CanvasNode[];
  edges: CanvasEdge[];
  deleted_node_ids: string[];
  deleted_edge_ids: string[];
  canvas_version: number;
  errors: { op: string; kind: string; index: number; field: string | null; code: string; message: string }[];
}

export interface CanvasState extends Base {
  type: "canvas_state";
  nodes: CanvasNode[];
  edges: CanvasEdge[];
  canvas_version: number;
  next_cursor: string | null;
}

export type ServerFrame =
  | Connected
  | Snapshot
  | Pong
  | Draining
  | ErrorFrame
  | MessageAppended
  | CompletionQueued
  | CompletionInit
  | Chunk
  | Sentence
  | ToolCallChunk
  | ToolCallFrame
  | AssistantMessageComplete
  | CompletionDone
  | CompletionStopped
  | ToolConfirmationProcessed
  | CanvasChanged
  | CanvasBatchResult
  | CanvasState;

export interface AppendMessage {
  type: "append_message";
  request_id: string;
  role: "user" | "system" | "tool";
  content: string;
  tool_call_id?: string;
  metadata?: Record<string, unknown>;
}

export interface RequestCompletion {
  type: "request_completion";
  request_id: string;
  reasoning?: boolean;
  model?: string;
  on_busy?: "enqueue" | "reject" | "interrupt";
  on_pending?: "reject" | "decline" | "run_decided";
}

export interface StopCompletion {
  type: "stop_completion";
  request_id: string;
  target_request_id?: string;
  scope?: "one" | "all";
}

export interface ConfirmTool {
  type: "confirm_tool";
  request_id: string;
  tool_call_id: string;
  decision: "accept" | "reject";
  arguments?: string;
  reason?: string;
}

/** Every one of them on a project's socket only. */
export type CanvasRequest = { request_id: string; domain: "canvas" } & (
  | { type: "canvas_get"; cursor?: string }
  | { type: "canvas_node_create"; node: Partial<Omit<CanvasNode, "id" | "version" | "created_by">> }
  | { type: "canvas_node_update"; node: Partial<CanvasNode> & { id: string; version: number } }
  | { type: "canvas_batch_create"; nodes: object[]; edges: object[] }
  | { type: "canvas_batch_delete"; node_ids: string[]; edge_ids: string[] }
  | { type: "canvas_edge_create"; edge: { source: string; target: string } }
);

export type RequestFrame = AppendMessage | RequestCompletion | StopCompletion | ConfirmTool | CanvasRequest;
