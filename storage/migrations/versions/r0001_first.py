"""Sessions, messages, runs, steps, tool calls, requests and nodes.

``agent_step`` and ``tool_invocation`` may be there from the older schema (sessions.md 5); they keep their
rows and get the newer columns, so what is not known of an old row is null.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
create table chat_session (
    session_id      text primary key,
    owner           text not null,
    namespace       text not null default 'local',
    actor_name      text,
    project_id      text,
    metadata        jsonb not null default '{}',
    linked_plan_ids text[] not null default '{}',
    status          text not null default 'active' check (status in ('active', 'deleted')),
    pair_count      integer not null default 0 check (pair_count >= 0),
    next_sequence   integer not null default 0 check (next_sequence >= 0),
    fence           bigint not null default 0,
    owner_node      text,
    input_tokens    bigint not null default 0 check (input_tokens >= 0),
    output_tokens   bigint not null default 0 check (output_tokens >= 0),
    estimated_cost  double precision not null default 0 check (estimated_cost >= 0),
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    last_active_at  timestamptz not null,
    expires_at      timestamptz,
    deleted_at      timestamptz
) with (fillfactor = 80)
""",
    """
create index chat_session_by_owner on chat_session (owner, created_at desc, session_id desc)
 where status = 'active'
""",
    """
create index chat_session_by_project on chat_session (project_id, last_active_at)
 where project_id is not null
""",
    """
create table session_message (
    session_id   text not null references chat_session on delete cascade,
    sequence     integer not null check (sequence >= 0),
    message_id   text not null unique,
    role         text not null check (role in ('user', 'assistant', 'system', 'tool')),
    content      text not null,
    tool_call_id text check (role <> 'tool' or tool_call_id is not null),
    tool_calls   jsonb not null default '[]',
    metadata     jsonb not null default '{}',
    origin       text not null,
    created_at   timestamptz not null,
    primary key (session_id, sequence)
)
""",
    """
create table diagnosis_run (
    id               bigserial primary key,
    run_id           text not null unique,
    session_id       text not null references chat_session on delete cascade,
    request_id       text,
    query            text not null default '',
    status           text not null check (status in
        ('running', 'succeeded', 'failed', 'stopped', 'interrupted', 'awaiting_input')),
    agent_flow       text not null default 'CHAT' check (agent_flow in ('CHAT', 'AI_OPS')),
    answer           text not null default '',
    self_evaluation  jsonb,
    feedback         text,
    model            text,
    fence            bigint not null default 0,
    finish_reason    text,
    error_code       text,
    error_message    text,
    continues_run_id text,
    message_id       text,
    partial_text     text not null default '',
    partial_thinking text not null default '',
    input_tokens     bigint not null default 0,
    output_tokens    bigint not null default 0,
    estimated_cost   double precision not null default 0,
    step_count       integer not null default 0,
    tool_call_count  integer not null default 0,
    created_at       timestamptz not null,
    updated_at       timestamptz not null,
    ended_at         timestamptz check (status <> 'running' or ended_at is null)
) with (fillfactor = 70)
""",
    "create unique index one_running_run on diagnosis_run (session_id) where status = 'running'",
    "create index diagnosis_run_by_session on diagnosis_run (session_id, created_at desc, id desc)",
    """
create table if not exists agent_step (
    id         bigserial primary key,
    session_id text,
    step_index integer,
    content    text,
    created_at timestamptz
)
""",
    """
alter table agent_step
    alter column session_id type text,
    add column run_id        text references diagnosis_run (run_id) on delete cascade,
    add column model         text,
    add column thinking      text,
    add column finish_reason text,
    add column input_tokens  integer not null default 0,
    add column output_tokens integer not null default 0,
    add column ttft_ms       integer,
    add column started_at    timestamptz,
    add column ended_at      timestamptz,
    add constraint agent_step_of_session foreign key (session_id) references chat_session
        on delete cascade not valid
""",
    # Older rows have no started_at, and their indexes may repeat within the one run they are given.
    """
create unique index agent_step_of_run on agent_step (run_id, step_index)
 where run_id is not null and started_at is not null
""",
    "create index agent_step_by_session on agent_step (session_id)",
    """
create table if not exists tool_invocation (
    id         bigserial primary key,
    session_id text,
    tool_name  text,
    arguments  text,
    result     text,
    success    boolean,
    created_at timestamptz
)
""",
    """
alter table tool_invocation
    alter column session_id type text,
    alter column tool_name type text,
    add column run_id               text references diagnosis_run (run_id) on delete cascade,
    add column step_index           integer,
    add column tool_call_id         text,
    add column assistant_message_id text,
    add column message_id           text,
    add column arguments_sha256     text,
    add column confirmation_state   text check (confirmation_state in
        ('not_required', 'pending', 'accepted', 'rejected', 'awaiting_input')),
    add column execution_state      text check (execution_state in
        ('waiting', 'running', 'succeeded', 'failed', 'cancelled')),
    add column error_code           text,
    add column error_message        text,
    add column decision             text,
    add column decided_by           text,
    add column decision_reason      text,
    add column decided_at           timestamptz,
    add column started_at           timestamptz,
    add column ended_at             timestamptz,
    add constraint tool_invocation_of_session foreign key (session_id) references chat_session
        on delete cascade not valid
""",
    """
create unique index tool_invocation_by_call on tool_invocation (session_id, tool_call_id)
 where tool_call_id is not null
""",
    "create index tool_invocation_by_session on tool_invocation (session_id)",
    "create index tool_invocation_by_run on tool_invocation (run_id)",
    """
create index tool_invocation_open on tool_invocation (session_id)
 where execution_state in ('waiting', 'running')
""",
    """
create table client_request (
    resource_id text not null,
    request_id  text not null,
    kind        text not null,
    body_sha256 text not null,
    run_id      text references diagnosis_run (run_id) on delete cascade,
    message_id  text,
    outcome     jsonb,
    created_at  timestamptz not null default now(),
    primary key (resource_id, request_id)
)
""",
    "create index client_request_by_run on client_request (run_id) where run_id is not null",
    """
create table node (
    node_id    text primary key,
    address    text,
    started_at timestamptz not null default now()
)
""",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
