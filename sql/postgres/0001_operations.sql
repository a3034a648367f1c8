-- SPDX-License-Identifier: Apache-2.0
-- The operations of Hapax in PostgreSQL, version 1: plain SQL, no extension, no superuser. Times are milliseconds since
-- 1970 by this server's clock. States are numbered as in src/core/operation/record.h: 0 absent, 1 processing,
-- 2 completed, 3 failed, 4 unknown, 5 expired.
--
-- Gateways call the functions whose names end in _many, each with arrays: many requests, one statement, one commit.
-- None of them waits for a row that another transaction has locked (an application may lock its operation's row for as
-- long as its own transaction runs): they return no row for it, and are called again. Only claims wait, for a second at
-- most: for a key that an open transaction has just inserted, and for a change of rules.
--
-- A connection may be lost before it is known whether a statement was committed. So every write carries a ticket, a
-- random number. A row keeps the ticket of its claim and that of its last write, and a write whose ticket is there has
-- been done already: a write that is in doubt is sent again. The row of a release stays for a minute, so that this
-- works for releases too.

CREATE SCHEMA hapax;

CREATE TABLE hapax.store (
    single      boolean PRIMARY KEY DEFAULT true CHECK (single),
    version     integer NOT NULL,              -- of this schema
    digest      text NOT NULL DEFAULT '',      -- of the migrations that made it, as tools/embed appends it to them
    secret      bytea NOT NULL CHECK (length(secret) = 32)
);

CREATE SEQUENCE hapax.epochs AS bigint;

-- The columns that an outcome doesn't change come first: of an update on the same page PostgreSQL logs only what lies
-- between the unchanged beginning and end of the row.
CREATE TABLE hapax.operations (
    op              bytea PRIMARY KEY,
    epoch           bigint NOT NULL,
    claim_ticket    bigint NOT NULL,
    lifetime        bigint NOT NULL DEFAULT 0, -- for hapax.complete: how long an outcome is kept, and its tombstone
    tombstone       bigint NOT NULL DEFAULT 0,
    rule_version    integer NOT NULL,
    route           text NOT NULL,
    head            bytea NOT NULL,            -- the record as it was claimed (src/core/operation/record.c)
    write_ticket    bigint NOT NULL,
    changed_at      bigint NOT NULL,
    due_at          bigint,                    -- when a sweep has to look at it; NULL: never
    lease_until     bigint NOT NULL DEFAULT 0,
    expires_at      bigint NOT NULL DEFAULT 0,
    tombstone_until bigint NOT NULL DEFAULT 0,
    state           smallint NOT NULL,
    from_state      smallint NOT NULL,
    attempt         integer NOT NULL,
    status          smallint NOT NULL DEFAULT 0,
    retained        boolean NOT NULL DEFAULT false,
    awaited         boolean NOT NULL DEFAULT false, -- by another node: its end is to be announced
    reason          text NOT NULL DEFAULT '',
    result          text NOT NULL DEFAULT '',
    headers         bytea NOT NULL DEFAULT '',
    body            bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 1);

CREATE INDEX operations_due ON hapax.operations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX operations_unknown ON hapax.operations (changed_at) WHERE state = 4;

-- Earlier records that the present row doesn't show: an unknown one that was settled or taken over, a release after
-- which the key was used again, an outcome of which only its tombstone is left, an operation that an operator removed.
CREATE TABLE hapax.past (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    since    bigint NOT NULL,                  -- kept for 30 days from then
    op       bytea NOT NULL,
    was      hapax.operations NOT NULL
);

CREATE INDEX past_op ON hapax.past (op, number);

-- The rules in force: the version of each named route, and under '' that of everything without one. A claim locks the
-- table in ROW SHARE MODE, a change of rules or of the epoch sequence in EXCLUSIVE MODE. Such a lock needs rights on
-- the table, while any role that may connect can take an advisory one.
CREATE TABLE hapax.rules (
    route        text PRIMARY KEY,
    rule_version integer NOT NULL
);

-- Rules under which nothing can be claimed while a node counts their operations, at most until the given time.
CREATE TABLE hapax.retired (
    owner        bigint NOT NULL,
    route        text NOT NULL,
    rule_version integer NOT NULL,
    until        bigint NOT NULL
);

CREATE FUNCTION hapax.now() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The end of a lifetime is kept to the second, rounded up.
CREATE FUNCTION hapax.second_up(at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT (at + 999) / 1000 * 1000 $$;

CREATE FUNCTION hapax.state_at(state smallint, expires_at bigint, tombstone_until bigint, at bigint) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT CASE WHEN state NOT IN (2, 3, 5) THEN state
               WHEN state <> 5 AND at < hapax.second_up(expires_at) THEN state
               WHEN at < hapax.second_up(tombstone_until) THEN 5::smallint
               ELSE 0::smallint END $$;

-- The bit 2^31 of a version says that the route has a name (HX_RULE_NAMED); the column is signed.
CREATE FUNCTION hapax.rule_route(route text, rule_version integer) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT CASE WHEN rule_version < 0 THEN route ELSE '' END $$;

-- The result of a function for one of its operations: 0 done, 1 exists, 2 stale, 6 retired (as in src/store/store.h),
-- and its record; 7: the results would become too large, and nothing was changed. There is no row for an operation that
-- couldn't be decided. In both cases the gateway calls again.
CREATE TYPE hapax.verdict AS (
    i               integer,                   -- place in the arrays, from 1
    verdict         integer,
    epoch           bigint,
    changed_at      bigint,
    lease_until     bigint,
    expires_at      bigint,
    tombstone_until bigint,
    state           smallint,
    from_state      smallint,
    attempt         integer,
    status          smallint,
    retained        boolean,
    reason          text,
    result          text,
    head            bytea,
    headers         bytea,
    body            bytea
);

CREATE FUNCTION hapax.found(i bigint, verdict integer, o hapax.operations) RETURNS hapax.verdict
LANGUAGE sql IMMUTABLE AS
$$ SELECT (i::integer, verdict, o.epoch, o.changed_at, o.lease_until, o.expires_at, o.tombstone_until, o.state,
           o.from_state, o.attempt, o.status, o.retained, o.reason, o.result, o.head, o.headers,
           o.body)::hapax.verdict $$;

CREATE FUNCTION hapax.done(i bigint, epoch bigint) RETURNS hapax.verdict LANGUAGE sql IMMUTABLE AS
$$ SELECT (i::integer, 0, epoch, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL)::hapax.verdict $$;

CREATE FUNCTION hapax.is_free(o hapax.operations, at bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT o.op IS NULL OR hapax.state_at(o.state, o.expires_at, o.tombstone_until, at) = 0 $$;

-- A record as hapax.past keeps it: without its response.
CREATE FUNCTION hapax.bare(o hapax.operations) RETURNS hapax.operations LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    o.headers := '';
    o.body := '';
    RETURN o;
END $$;

-- A row that is visible has been committed, but it may not be on the standby, if the wait for that was cancelled or the
-- server crashed in it. So a transaction that has found one writes to the log behind it, and waits for that.
CREATE FUNCTION hapax.witness() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_standby_names') <> '' THEN
        PERFORM pg_logical_emit_message(true, 'hapax', '');
    END IF;
END $$;

-- The places of the operations whose stored responses are left out, so that one call returns at most 4 MiB of them and
-- one more. The first one is never left out.
CREATE FUNCTION hapax.excess_many(ops bytea[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(ops) = 1 THEN RETURN '{}'; END IF;
    RETURN (SELECT coalesce(array_agg(x.i), '{}')
              FROM (SELECT u.i, sum(octet_length(o.headers) + octet_length(o.body))
                                OVER (ORDER BY u.i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                      FROM unnest(ops) WITH ORDINALITY AS u(op, i) JOIN hapax.operations o USING (op)) x
             WHERE x.before >= 4 << 20);
END $$;

CREATE FUNCTION hapax.read_many(ops bytea[]) RETURNS SETOF hapax.verdict LANGUAGE plpgsql AS $$
DECLARE
    excess bigint[] := hapax.excess_many(ops);
BEGIN
    RETURN QUERY SELECT f.* FROM unnest(ops) WITH ORDINALITY AS u(op, i) JOIN hapax.operations o USING (op),
                                 hapax.found(u.i, 0, o) f
                  WHERE u.i <> ALL (excess);
    IF FOUND THEN PERFORM hapax.witness(); END IF;
    RETURN QUERY SELECT f.* FROM unnest(excess) AS x(i), hapax.found(x.i, 7, NULL) f;
END $$;

-- The places of rules that are not in force: another version was enforced, or a node counts their operations. Version 0
-- is that of shadow mode (HX_RULE_SHADOW), which has no rules. hapax.claim_many repeats this, so that its plan is kept.
CREATE FUNCTION hapax.retired_among(at bigint, routes text[], versions integer[]) RETURNS integer[]
LANGUAGE sql STABLE AS
$$ SELECT coalesce(array_agg(u.i::integer), '{}')
     FROM unnest(routes, versions) WITH ORDINALITY AS u(route, version, i)
    WHERE u.version <> 0
      AND (EXISTS (SELECT FROM hapax.rules r
                    WHERE r.route = hapax.rule_route(u.route, u.version) AND r.rule_version <> u.version)
           OR EXISTS (SELECT FROM hapax.retired r
                       WHERE r.rule_version = u.version AND r.until > at
                         AND (r.route = u.route OR r.route = '' AND u.version >= 0))) $$;

-- A row is free when it was released, or has expired without a tombstone; take_over is the epoch of an unknown one that
-- may be sent again. `not_after` refuses a statement that arrives late, from a connection that was given up: no request
-- waits for its claims any more. A claim that was made with the same ticket and released is not made again. An epoch is
-- drawn while its row is locked, so that it is greater than all before it.
CREATE FUNCTION hapax.claim_many(at bigint, not_after bigint, ops bytea[], tickets bigint[], take_overs bigint[],
                                 changed bigint[], leases bigint[], lifetimes bigint[], tombstones bigint[],
                                 versions integer[], from_states smallint[], attempts integer[], routes text[],
                                 heads bytea[])
RETURNS SETOF hapax.verdict LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
DECLARE
    moment  bigint := coalesce(at, hapax.now());
    refused integer[];
    free    integer[];
    excess  bigint[];
    won     bigint;
BEGIN
    IF not_after < moment THEN
        RAISE EXCEPTION 'a claim came too late by % ms, or this server''s clock is ahead of the gateway''s',
              moment - not_after USING ERRCODE = 'HX006';
    END IF;
    -- The same as hapax.retired_among. It sees rules that were retired while this waited for the lock.
    LOCK TABLE hapax.rules IN ROW SHARE MODE;
    SELECT coalesce(array_agg(u.i::integer), '{}') INTO refused
      FROM unnest(routes, versions) WITH ORDINALITY AS u(route, version, i)
     WHERE u.version <> 0
       AND (EXISTS (SELECT FROM hapax.rules r
                     WHERE r.route = hapax.rule_route(u.route, u.version) AND r.rule_version <> u.version)
            OR EXISTS (SELECT FROM hapax.retired r
                        WHERE r.rule_version = u.version AND r.until > moment
                          AND (r.route = u.route OR r.route = '' AND u.version >= 0)));
    RETURN QUERY
    WITH written AS (
        INSERT INTO hapax.operations AS o
               (op, epoch, claim_ticket, write_ticket, changed_at, due_at, lease_until, lifetime, tombstone,
                rule_version, state, from_state, attempt, route, head)
        SELECT u.op, nextval('hapax.epochs'), u.ticket, u.ticket, u.changed, nullif(u.lease, 0), u.lease, u.lifetime,
               u.tombstone, u.version, 1, u.from_state, u.attempt, u.route, u.head
          FROM unnest(ops, tickets, take_overs, changed, leases, lifetimes, tombstones, versions, from_states, attempts,
                      routes, heads) WITH ORDINALITY
               AS u(op, ticket, take_over, changed, lease, lifetime, tombstone, version, from_state, attempt, route,
                    head, i)
         WHERE u.take_over = 0 AND u.i <> ALL (refused)
         ORDER BY u.op
        ON CONFLICT (op) DO NOTHING
        RETURNING o.op, o.epoch
    )
    SELECT u.i::integer, 0, w.epoch, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::smallint,
           NULL::smallint, NULL::integer, NULL::smallint, NULL::boolean, NULL::text, NULL::text, NULL::bytea,
           NULL::bytea, NULL::bytea
      FROM written w JOIN unnest(ops) WITH ORDINALITY AS u(op, i) ON u.op = w.op;
    GET DIAGNOSTICS won = ROW_COUNT;
    IF won = cardinality(ops) THEN RETURN; END IF;

    SELECT array_agg(x.i) INTO free
      FROM (SELECT u.i FROM unnest(ops, tickets, take_overs) WITH ORDINALITY AS u(op, ticket, take_over, i)
              JOIN hapax.operations o USING (op)
             WHERE u.i <> ALL (refused) -- those that were inserted above are not free
               AND (u.take_over = 0 AND hapax.is_free(o, moment) AND o.claim_ticket <> u.ticket
                    OR u.take_over <> 0 AND o.state = 4 AND o.epoch = u.take_over)
             ORDER BY o.op FOR UPDATE OF o SKIP LOCKED) x;
    IF free IS NOT NULL THEN
        INSERT INTO hapax.past (since, op, was)
        SELECT moment, o.op, hapax.bare(o)
          FROM hapax.operations o JOIN unnest(ops) WITH ORDINALITY AS u(op, i) USING (op)
         WHERE u.i = ANY (free);
        RETURN QUERY
        WITH written AS (
            UPDATE hapax.operations o
               SET epoch = nextval('hapax.epochs'), claim_ticket = u.ticket, write_ticket = u.ticket,
                   changed_at = u.changed, due_at = nullif(u.lease, 0), lease_until = u.lease, expires_at = 0,
                   tombstone_until = 0, lifetime = u.lifetime, tombstone = u.tombstone, rule_version = u.version,
                   state = 1, from_state = u.from_state, attempt = u.attempt, status = 0, retained = false,
                   awaited = false, route = u.route, reason = '', result = '', head = u.head, headers = '', body = ''
              FROM unnest(ops, tickets, changed, leases, lifetimes, tombstones, versions, from_states, attempts,
                          routes, heads) WITH ORDINALITY
                   AS u(op, ticket, changed, lease, lifetime, tombstone, version, from_state, attempt, route, head, i)
             WHERE o.op = u.op AND u.i = ANY (free)
            RETURNING u.i, o.epoch
        )
        SELECT f.* FROM written w, hapax.done(w.i, w.epoch) f;
    END IF;

    excess := hapax.excess_many(ops);
    RETURN QUERY
    SELECT f.*
      FROM unnest(ops, tickets, take_overs) WITH ORDINALITY AS u(op, ticket, take_over, i)
      LEFT JOIN hapax.operations o USING (op),
      LATERAL (SELECT CASE WHEN hapax.is_free(o, moment) AND u.take_over <> 0 THEN 2
                           WHEN hapax.is_free(o, moment) OR o.state = 4 AND o.epoch = u.take_over
                                THEN CASE WHEN u.i = ANY (refused) THEN 6 END
                           WHEN o.claim_ticket = u.ticket AND o.state = 1 THEN 0
                           ELSE 1 END AS verdict) v,
      hapax.found(u.i, v.verdict, o) f
     WHERE coalesce(o.claim_ticket <> u.ticket OR o.xmin <> pg_current_xact_id()::xid, true) -- those are returned above
       AND v.verdict IS NOT NULL AND u.i <> ALL (excess);
    IF FOUND THEN PERFORM hapax.witness(); END IF;
    RETURN QUERY
    SELECT f.* FROM unnest(excess) AS x(i) JOIN hapax.operations o ON o.op = ops[x.i], hapax.found(x.i, 7, NULL) f
     WHERE o.claim_ticket <> tickets[x.i] OR o.xmin <> pg_current_xact_id()::xid;
END $$;

-- An outcome, `unknown` or a release ends a claim, or an unknown operation with the same epoch. The row of a release
-- stays until it is swept, so that it can be distinguished from one that never arrived. If another node waits for the
-- operation, the epoch of the verdict is 1: then hapax.tell_many is called, in a transaction of its own, because NOTIFY
-- makes commits wait for each other.
CREATE FUNCTION hapax.settle_many(ops bytea[], epochs bigint[], tickets bigint[], changed bigint[], expires bigint[],
                                  tombstones bigint[], states smallint[], from_states smallint[], attempts integer[],
                                  statuses smallint[], retained_ones boolean[], reasons text[], results text[],
                                  answer_headers bytea[], answer_bodies bytea[])
RETURNS SETOF hapax.verdict LANGUAGE plpgsql AS $$
DECLARE
    done      bigint;
    open      integer[];
    heard     boolean[];
    has_past  boolean;
    excess    bigint[];
BEGIN
    RETURN QUERY
    WITH open AS MATERIALIZED (
        SELECT u.*, o.ctid AS place, o.awaited
          FROM unnest(ops, epochs, tickets, changed, expires, tombstones, states, from_states, attempts, statuses,
                      retained_ones, reasons, results, answer_headers, answer_bodies) WITH ORDINALITY
               AS u(op, epoch, ticket, changed, expires, tombstone, state, from_state, attempt, status, retained,
                    reason, result, headers, body, i)
          JOIN hapax.operations o USING (op)
         WHERE o.epoch = u.epoch AND o.state = 1
         ORDER BY u.op FOR UPDATE OF o SKIP LOCKED)
    UPDATE hapax.operations o
       SET write_ticket = u.ticket, changed_at = u.changed, lease_until = 0, expires_at = u.expires,
           tombstone_until = u.tombstone,
           due_at = CASE u.state WHEN 4 THEN NULL WHEN 0 THEN u.changed + 60000 ELSE hapax.second_up(u.expires) END,
           state = u.state, from_state = u.from_state, attempt = u.attempt, status = u.status,
           retained = u.retained, reason = u.reason, result = u.result, headers = u.headers, body = u.body
      FROM open u WHERE o.ctid = u.place
    RETURNING u.i::integer, 0, CASE WHEN u.awaited THEN 1::bigint END, NULL::bigint, NULL::bigint, NULL::bigint,
              NULL::bigint, NULL::smallint, NULL::smallint, NULL::integer, NULL::smallint, NULL::boolean, NULL::text,
              NULL::text, NULL::bytea, NULL::bytea, NULL::bytea;
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done = cardinality(ops) THEN RETURN; END IF;

    -- The same for operations that are unknown, or were changed just now.
    SELECT array_agg(x.i), array_agg(x.awaited), bool_or(x.state = 4) INTO open, heard, has_past
      FROM (SELECT u.i, o.awaited, o.state FROM unnest(ops, epochs, states) WITH ORDINALITY AS u(op, epoch, state, i)
              JOIN hapax.operations o USING (op)
             WHERE o.epoch = u.epoch AND (o.state = 1 OR o.state = 4 AND u.state <> 4)
             ORDER BY o.op FOR UPDATE OF o SKIP LOCKED) x;
    IF has_past THEN
        INSERT INTO hapax.past (since, op, was)
        SELECT u.changed, o.op, hapax.bare(o)
          FROM hapax.operations o JOIN unnest(ops, changed) WITH ORDINALITY AS u(op, changed, i) USING (op)
         WHERE u.i = ANY (open) AND o.state = 4;
    END IF;
    IF open IS NOT NULL THEN
        UPDATE hapax.operations o
           SET write_ticket = u.ticket, changed_at = u.changed, lease_until = 0, expires_at = u.expires,
               tombstone_until = u.tombstone,
               due_at = CASE u.state WHEN 4 THEN NULL WHEN 0 THEN u.changed + 60000 ELSE hapax.second_up(u.expires) END,
               state = u.state, from_state = u.from_state, attempt = u.attempt, status = u.status,
               retained = u.retained, reason = u.reason, result = u.result, headers = u.headers, body = u.body
          FROM unnest(ops, tickets, changed, expires, tombstones, states, from_states, attempts, statuses,
                      retained_ones, reasons, results, answer_headers, answer_bodies) WITH ORDINALITY
               AS u(op, ticket, changed, expires, tombstone, state, from_state, attempt, status, retained, reason,
                    result, headers, body, i)
         WHERE o.op = u.op AND (cardinality(open) = cardinality(ops) OR u.i = ANY (open));
        RETURN QUERY SELECT f.* FROM unnest(open, heard) AS w(i, awaited),
                                     hapax.done(w.i, CASE WHEN w.awaited THEN 1 END) f;
    END IF;

    excess := hapax.excess_many(ops);
    RETURN QUERY
    SELECT f.*
      FROM unnest(ops, epochs, tickets, states) WITH ORDINALITY AS u(op, epoch, ticket, state, i)
      LEFT JOIN hapax.operations o USING (op),
      LATERAL (SELECT CASE WHEN o.write_ticket = u.ticket THEN 0
                           WHEN o.epoch = u.epoch AND (o.state = 1 OR o.state = 4 AND u.state <> 4) THEN NULL
                           ELSE 2 END AS verdict) v,
      hapax.found(u.i, v.verdict, o) f
     WHERE coalesce(o.write_ticket <> u.ticket OR o.xmin <> pg_current_xact_id()::xid, true) -- those are returned above
       AND v.verdict IS NOT NULL AND u.i <> ALL (excess);
    IF FOUND THEN PERFORM hapax.witness(); END IF;
    RETURN QUERY
    SELECT f.* FROM unnest(excess) AS x(i) JOIN hapax.operations o ON o.op = ops[x.i], hapax.found(x.i, 7, NULL) f
     WHERE o.write_ticket <> tickets[x.i] OR o.xmin <> pg_current_xact_id()::xid;
END $$;

CREATE FUNCTION hapax.renew_many(ops bytea[], epochs bigint[], leases bigint[])
RETURNS SETOF hapax.verdict LANGUAGE plpgsql AS $$
DECLARE
    open   bigint[];
    excess bigint[];
BEGIN
    SELECT array_agg(x.i) INTO open
      FROM (SELECT u.i FROM unnest(ops, epochs) WITH ORDINALITY AS u(op, epoch, i)
              JOIN hapax.operations o USING (op)
             WHERE o.epoch = u.epoch AND o.state = 1
             ORDER BY o.op FOR UPDATE OF o SKIP LOCKED) x;
    UPDATE hapax.operations o SET lease_until = u.lease, due_at = nullif(u.lease, 0)
      FROM unnest(ops, leases) WITH ORDINALITY AS u(op, lease, i)
     WHERE o.op = u.op AND u.i = ANY (open);
    RETURN QUERY SELECT f.* FROM unnest(open) AS w(i), hapax.done(w.i, NULL) f;
    IF cardinality(open) = cardinality(ops) THEN RETURN; END IF;
    excess := hapax.excess_many(ops);
    RETURN QUERY
    SELECT f.* FROM unnest(ops, epochs) WITH ORDINALITY AS u(op, epoch, i)
      LEFT JOIN hapax.operations o USING (op), hapax.found(u.i, 2, o) f
     WHERE u.i <> ALL (coalesce(open, '{}') || excess) AND NOT coalesce(o.epoch = u.epoch AND o.state = 1, false);
    RETURN QUERY
    SELECT f.* FROM unnest(excess) AS x(i), hapax.found(x.i, 7, NULL) f WHERE x.i <> ALL (coalesce(open, '{}'));
END $$;

CREATE FUNCTION hapax.await_many(ops bytea[]) RETURNS bigint LANGUAGE sql AS
$$ WITH open AS (
       SELECT o.op FROM unnest(ops) AS u(op) JOIN hapax.operations o USING (op)
        WHERE o.state = 1 AND NOT o.awaited ORDER BY o.op FOR UPDATE OF o SKIP LOCKED),
   marked AS (UPDATE hapax.operations o SET awaited = true FROM open WHERE o.op = open.op RETURNING 1)
   SELECT count(*) FROM marked $$;

CREATE FUNCTION hapax.tell_many(ops bytea[]) RETURNS bigint LANGUAGE sql AS
$$ SELECT count(pg_notify('hapax', encode(u.op, 'hex'))::text) FROM unnest(ops) AS u(op) $$;

-- Ends abandoned claims, under which nothing was sent, and returns their places. The claim of a new operation is
-- released. One that took an unknown operation over (its head has the state from which it came) makes it unknown again:
-- no more is known of what was sent before it.
CREATE FUNCTION hapax.abandon_many(ops bytea[], tickets bigint[]) RETURNS SETOF bigint LANGUAGE sql AS
$$ WITH open AS (
       SELECT u.i, o.op, get_byte(o.head, 2) = 4 AS was_unknown
         FROM unnest(ops, tickets) WITH ORDINALITY AS u(op, ticket, i) JOIN hapax.operations o USING (op)
        WHERE o.claim_ticket = u.ticket
          AND (o.state = 1 OR o.state = 4 AND o.reason = 'lease' AND get_byte(o.head, 2) <> 4)
        ORDER BY o.op FOR UPDATE OF o SKIP LOCKED)
   UPDATE hapax.operations o
      SET state = CASE WHEN open.was_unknown THEN 4 ELSE 0 END, from_state = o.state, changed_at = hapax.now(),
          reason = CASE WHEN open.was_unknown THEN 'nothing was sent again' ELSE 'nothing was sent' END,
          lease_until = 0, due_at = CASE WHEN open.was_unknown THEN NULL ELSE hapax.now() + 60000 END
     FROM open WHERE o.op = open.op RETURNING open.i $$;

-- Removes an operation for an operator. The row stays until it is swept, with the reason. If it is locked: 55P03.
CREATE FUNCTION hapax.forget(at bigint, ticket bigint, which bytea, in_epoch bigint, in_states integer, why text)
RETURNS SETOF hapax.verdict LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := coalesce(at, hapax.now());
    o      hapax.operations;
    stands integer;
BEGIN
    SELECT * INTO o FROM hapax.operations x WHERE x.op = which FOR UPDATE NOWAIT;
    stands := CASE WHEN o.op IS NULL THEN 0 ELSE hapax.state_at(o.state, o.expires_at, o.tombstone_until, moment) END;
    IF o.write_ticket = ticket THEN
        RETURN QUERY SELECT f.* FROM hapax.done(1, NULL) f;
    ELSIF stands IN (0, 1) OR in_epoch NOT IN (0, o.epoch) OR in_states <> 0 AND in_states >> stands & 1 = 0 THEN
        RETURN QUERY SELECT f.* FROM hapax.found(1, 2, o) f;
    ELSE
        INSERT INTO hapax.past (since, op, was) VALUES (moment, o.op, hapax.bare(o));
        UPDATE hapax.operations x
           SET write_ticket = ticket, changed_at = moment, due_at = moment + 60000, expires_at = 0, tombstone_until = 0,
               state = 0, from_state = stands, reason = why, headers = '', body = ''
         WHERE x.op = which;
        RETURN QUERY SELECT f.* FROM hapax.done(1, NULL) f;
    END IF;
END $$;

-- Sweeps a few rows that are not locked: a lapsed lease becomes unknown, an expired outcome becomes a tombstone or is
-- removed, a release is removed. Returns how many rows it looked at, and how many of them it removed.
CREATE FUNCTION hapax.sweep(at bigint, most integer, OUT looked_at integer, OUT gone integer) LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := coalesce(at, hapax.now());
    due    bytea[];
BEGIN
    SELECT array_agg(x.op) INTO due
      FROM (SELECT op FROM hapax.operations WHERE due_at <= moment ORDER BY due_at LIMIT most
            FOR UPDATE SKIP LOCKED) x;
    looked_at := coalesce(cardinality(due), 0);
    UPDATE hapax.operations
       SET state = 4, from_state = 1, reason = 'lease', changed_at = moment, lease_until = 0, due_at = NULL
     WHERE op = ANY (due) AND state = 1 AND lease_until <= moment;
    INSERT INTO hapax.past (since, op, was)
    SELECT moment, o.op, hapax.bare(o) FROM hapax.operations o
     WHERE op = ANY (due) AND state IN (2, 3) AND hapax.state_at(state, expires_at, tombstone_until, moment) = 5;
    UPDATE hapax.operations
       SET from_state = state, state = 5, reason = 'lifetime', changed_at = moment, status = 0, retained = false,
           headers = '', body = '', due_at = hapax.second_up(tombstone_until)
     WHERE op = ANY (due) AND state IN (2, 3) AND hapax.state_at(state, expires_at, tombstone_until, moment) = 5;
    WITH removed AS (
        DELETE FROM hapax.operations o WHERE op = ANY (due) AND hapax.is_free(o, moment) RETURNING state)
    SELECT count(*) FILTER (WHERE state <> 0) INTO gone FROM removed;
    DELETE FROM hapax.past p USING (
        SELECT number, since FROM hapax.past ORDER BY number LIMIT most FOR UPDATE SKIP LOCKED) oldest
     WHERE p.number = oldest.number AND oldest.since < moment - 30 * 86400000::bigint;
END $$;

-- A claim draws its epoch under a shared lock of this table. Here the lock is exclusive, so that none is drawn between
-- reading and setting the sequence, which would then be drawn again.
CREATE FUNCTION hapax.raise_epochs(above bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF above <= (SELECT last_value FROM hapax.epochs) THEN RETURN; END IF;
    LOCK TABLE hapax.rules IN EXCLUSIVE MODE;
    IF above > (SELECT last_value FROM hapax.epochs) THEN PERFORM setval('hapax.epochs', above); END IF;
END $$;

-- For moving a store: writes records as they are, and raises the sequence of epochs above theirs.
CREATE FUNCTION hapax.import_many(at bigint, ops bytea[], epochs bigint[], tickets bigint[], changed bigint[],
                                  leases bigint[], expires bigint[], tombstones bigint[], versions integer[],
                                  states smallint[], from_states smallint[], attempts integer[], statuses smallint[],
                                  retained_ones boolean[], routes text[], reasons text[], results text[], heads bytea[],
                                  answer_headers bytea[], answer_bodies bytea[])
RETURNS SETOF hapax.verdict LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := coalesce(at, hapax.now());
BEGIN
    PERFORM hapax.raise_epochs((SELECT max(e) FROM unnest(epochs) e));
    INSERT INTO hapax.operations AS o
           (op, epoch, claim_ticket, write_ticket, changed_at, due_at, lease_until, expires_at, tombstone_until,
            rule_version, state, from_state, attempt, status, retained, route, reason, result, head, headers, body)
    SELECT u.op, u.epoch, u.ticket, u.ticket, u.changed,
           CASE u.state WHEN 1 THEN nullif(u.lease, 0) WHEN 4 THEN NULL WHEN 5 THEN hapax.second_up(u.tombstone)
                        ELSE hapax.second_up(u.expires) END,
           u.lease, u.expires, u.tombstone, u.version, u.state, u.from_state, u.attempt, u.status, u.retained,
           u.route, u.reason, u.result, u.head, u.headers, u.body
      FROM unnest(ops, epochs, tickets, changed, leases, expires, tombstones, versions, states, from_states,
                  attempts, statuses, retained_ones, routes, reasons, results, heads, answer_headers,
                  answer_bodies)
           AS u(op, epoch, ticket, changed, lease, expires, tombstone, version, state, from_state, attempt, status,
                retained, route, reason, result, head, headers, body)
     WHERE u.state <> 0
     ORDER BY u.op
    ON CONFLICT (op) DO UPDATE
       SET epoch = EXCLUDED.epoch, claim_ticket = EXCLUDED.claim_ticket, write_ticket = EXCLUDED.write_ticket,
           changed_at = EXCLUDED.changed_at, due_at = EXCLUDED.due_at, lease_until = EXCLUDED.lease_until,
           expires_at = EXCLUDED.expires_at, tombstone_until = EXCLUDED.tombstone_until, lifetime = 0, tombstone = 0,
           awaited = false, rule_version = EXCLUDED.rule_version, state = EXCLUDED.state,
           from_state = EXCLUDED.from_state, attempt = EXCLUDED.attempt, status = EXCLUDED.status,
           retained = EXCLUDED.retained, route = EXCLUDED.route, reason = EXCLUDED.reason, result = EXCLUDED.result,
           head = EXCLUDED.head, headers = EXCLUDED.headers, body = EXCLUDED.body
     WHERE hapax.is_free(o, moment);
    RETURN QUERY
    SELECT f.* FROM unnest(ops, tickets, states) WITH ORDINALITY AS u(op, ticket, state, i)
      LEFT JOIN hapax.operations o USING (op),
      LATERAL (SELECT CASE u.state WHEN 0 THEN hapax.is_free(o, moment) ELSE o.write_ticket = u.ticket END) d(is_done),
      hapax.found(u.i, CASE WHEN is_done THEN 0 ELSE 1 END, CASE WHEN is_done THEN NULL ELSE o END) f
     WHERE u.state = 0 OR o.op IS NOT NULL;
END $$;

CREATE FUNCTION hapax.list(at bigint, after bytea, most integer, in_states integer, in_route text, why text,
                           changed_from bigint, changed_before bigint, with_key bytea, paths text[])
RETURNS SETOF hapax.verdict LANGUAGE sql STABLE AS
$$ SELECT 0, 0, o.epoch, o.changed_at, o.lease_until, o.expires_at, o.tombstone_until, s.state, o.from_state, o.attempt,
          o.status, o.retained, o.reason, o.result, o.head, ''::bytea, ''::bytea
     FROM hapax.operations o,
          LATERAL (SELECT hapax.state_at(o.state, o.expires_at, o.tombstone_until, coalesce(at, hapax.now()))) s(state)
    WHERE o.op >= after AND s.state <> 0
      AND (in_states = 0 OR in_states >> s.state & 1 = 1)
      AND (in_route = '' OR o.route = in_route)
      AND (why = '' OR starts_with(o.reason, why))
      AND o.changed_at >= changed_from AND (changed_before = 0 OR o.changed_at < changed_before)
      AND (with_key IS NULL OR substring(o.head FROM 233 FOR 32) = with_key)
      AND (paths IS NULL OR o.rule_version >= 0 AND o.route = ANY (paths))
    ORDER BY o.op LIMIT most $$;

-- Every known version of an operation, oldest first. If the present row is an outcome, the claim before it is made from
-- the row's head.
CREATE FUNCTION hapax.history(which bytea, skip bigint, most integer) RETURNS SETOF hapax.verdict LANGUAGE sql STABLE AS
$$ WITH versions AS (
       SELECT p.number, p.was FROM hapax.past p WHERE p.op = which
       UNION ALL SELECT 9223372036854775807, o FROM hapax.operations o WHERE o.op = which)
   SELECT (row_number() OVER w)::integer, 0, (v.was).epoch, h.changed_at, h.lease_until, h.expires_at,
          h.tombstone_until, h.state, h.from_state, h.attempt, h.status, h.retained, h.reason, h.result, (v.was).head,
          ''::bytea, ''::bytea
     FROM versions v,
          LATERAL (SELECT 0, NULL::bigint, NULL::bigint, 0::bigint, 0::bigint, 1::smallint, NULL::smallint,
                          NULL::integer, 0::smallint, false, '', ''
                    WHERE (v.was).state <> 1
                      AND NOT EXISTS (SELECT FROM hapax.past q WHERE q.op = which AND q.number < v.number
                                                                 AND (q.was).epoch = (v.was).epoch)
                   UNION ALL
                   SELECT 1, (v.was).changed_at, (v.was).lease_until, (v.was).expires_at, (v.was).tombstone_until,
                          (v.was).state, (v.was).from_state, (v.was).attempt, (v.was).status, (v.was).retained,
                          (v.was).reason, (v.was).result)
          h(step, changed_at, lease_until, expires_at, tombstone_until, state, from_state, attempt, status, retained,
            reason, result)
   WINDOW w AS (ORDER BY v.number, h.step)
    ORDER BY v.number, h.step OFFSET skip LIMIT most $$;

-- The same for every operation that has or had a key, in the order of their claims. It reads both tables.
CREATE FUNCTION hapax.history_of_key(with_key bytea, skip bigint, most integer) RETURNS SETOF hapax.verdict
LANGUAGE sql STABLE AS
$$ SELECT h.* FROM (SELECT p.op FROM hapax.past p WHERE substring((p.was).head FROM 233 FOR 32) = with_key
                    UNION SELECT o.op FROM hapax.operations o WHERE substring(o.head FROM 233 FOR 32) = with_key) found,
          LATERAL hapax.history(found.op, 0, NULL) h
    ORDER BY h.epoch, h.i OFFSET skip LIMIT most $$;

-- How many operations there are under each rule. It reads the whole table.
CREATE FUNCTION hapax.rules_of(at bigint) RETURNS TABLE (route text, rule_version integer, live bigint)
LANGUAGE sql STABLE AS
$$ SELECT hapax.rule_route(o.route, o.rule_version), o.rule_version, count(*) FROM hapax.operations o
    WHERE NOT hapax.is_free(o, coalesce(at, hapax.now())) GROUP BY 1, 2 $$;

-- For a large table the numbers are estimates, except that of unknown operations. `moment` is the server's time.
CREATE FUNCTION hapax.counts(OUT live bigint, OUT processing bigint, OUT unknown bigint, OUT bytes bigint,
                             OUT moment bigint) LANGUAGE plpgsql AS $$
BEGIN
    moment := hapax.now();
    SELECT reltuples::bigint INTO live FROM pg_class WHERE oid = 'hapax.operations'::regclass;
    SELECT count(*) INTO unknown FROM hapax.operations WHERE state = 4;
    bytes := pg_total_relation_size('hapax.operations');
    processing := 0;
    IF live < 10000 AND bytes < 64 << 20 THEN
        SELECT count(*) FILTER (WHERE state NOT IN (0, 1)), count(*) FILTER (WHERE state = 1) INTO live, processing
          FROM hapax.operations;
    END IF;
END $$;

-- hapax.enforce and hapax.retire wait for claims in progress; every claim after them sees the change.
CREATE FUNCTION hapax.enforce(routes text[], versions integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE hapax.rules IN EXCLUSIVE MODE;
    DELETE FROM hapax.retired WHERE until < hapax.now(); -- those of a node that still counts stay
    INSERT INTO hapax.rules SELECT u.route, u.version FROM unnest(routes, versions) AS u(route, version)
    ON CONFLICT (route) DO UPDATE SET rule_version = EXCLUDED.rule_version;
END $$;

CREATE FUNCTION hapax.retire(at bigint, by_owner bigint, for_ms bigint, routes text[], versions integer[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := coalesce(at, hapax.now());
BEGIN
    LOCK TABLE hapax.rules IN EXCLUSIVE MODE;
    DELETE FROM hapax.retired WHERE owner = by_owner OR until < moment;
    INSERT INTO hapax.retired SELECT by_owner, u.route, u.version, moment + for_ms
      FROM unnest(routes, versions) AS u(route, version);
END $$;

-- Rows are found by their keys. Plans are made once for a connection, when the table may be empty or have no
-- statistics, and must still be good when it has millions of rows.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT oid FROM pg_proc
              WHERE pronamespace = 'hapax'::regnamespace AND (proname LIKE '%\_many' OR proname = 'sweep')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan SET jit = off '
                       'SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off', f);
    END LOOP;
END $$;

INSERT INTO hapax.store (version, secret)
VALUES (1, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
