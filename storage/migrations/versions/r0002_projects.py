"""Projects and their canvases: nodes and edges, as rows of their own.

``data`` is ``json``, not ``jsonb``: a client gets back the numbers that it sent and the order in which it
sent them. Sessions that name a project already get its row.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
create table project (
    project_id     text primary key,
    owner          text not null,
    metadata       jsonb not null default '{}',
    status         text not null default 'active' check (status in ('active', 'deleted')),
    canvas_version bigint not null default 0 check (canvas_version >= 0),
    fence          bigint not null default 0,
    owner_node     text,
    created_at     timestamptz not null,
    updated_at     timestamptz not null,
    deleted_at     timestamptz
) with (fillfactor = 80)
""",
    """
insert into project (project_id, owner, created_at, updated_at)
select distinct on (project_id) project_id, owner, created_at, now()
  from chat_session where project_id is not null
 order by project_id, created_at, session_id
on conflict do nothing
""",
    """
create table canvas_node (
    project_id   text not null references project on delete cascade,
    node_id      uuid not null,
    type         text not null,
    x            double precision not null,
    y            double precision not null,
    width        double precision,
    height       double precision check ((width is null) = (height is null)),
    data         json not null,
    version      bigint not null check (version >= 1),
    run_id       text,
    tool_call_id text check ((run_id is null) = (tool_call_id is null)),
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    primary key (project_id, node_id)
)
""",
    # Checked at the end of the statement that writes a change, so nodes and edges come and go together.
    """
create table canvas_edge (
    project_id   text not null references project on delete cascade,
    edge_id      uuid not null,
    source       uuid not null,
    target       uuid not null,
    type         text not null,
    data         json not null,
    version      bigint not null check (version >= 1),
    run_id       text,
    tool_call_id text check ((run_id is null) = (tool_call_id is null)),
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    primary key (project_id, edge_id),
    constraint canvas_edge_source foreign key (project_id, source) references canvas_node,
    constraint canvas_edge_target foreign key (project_id, target) references canvas_node
)
""",
    "create index canvas_edge_by_source on canvas_edge (project_id, source)",
    "create index canvas_edge_by_target on canvas_edge (project_id, target)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
