-- SPDX-License-Identifier: Apache-2.0
-- Items, version 3: documents under a key, on which events are built. What a store promises of them, E1 to E8, is in
-- src/store/items.h. Gateways call commit_many, get_many and scan.
--
-- A commit compares the versions of all its items and changes all of them, or nothing. Several commits share one
-- transaction; no two of them name the same key, unless both check one that is there. Each transaction locks first the
-- rows that are there, then inserts those that are not, both in the order of keys, and waits for nothing after that: so
-- commits never deadlock, and wait for each other no longer than it takes to commit. An item that must be absent is
-- inserted in any case, for its key to be locked, and deleted again where the commit doesn't put it.
--
-- A commit whose connection is lost is sent again, with the same ticket: hapax.item_commits has those of the last
-- minutes. A statement that arrives late, out of a connection that was given up, finds its ticket there too, and after
-- half a minute is refused.

CREATE TABLE hapax.items (
    key        bytea PRIMARY KEY,
    version    bigint NOT NULL,
    queue      bytea,                          -- NULL: in none
    due        bigint NOT NULL,                -- its place in the queue
    expires_at bigint NOT NULL,                -- 0: never
    meta       text NOT NULL,
    body       bytea NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 1);

CREATE INDEX items_queue ON hapax.items (queue, due, key) WHERE queue IS NOT NULL;
CREATE INDEX items_expiring ON hapax.items (expires_at) WHERE expires_at > 0;

CREATE SEQUENCE hapax.item_versions AS bigint;

CREATE TABLE hapax.item_commits (
    ticket  bigint PRIMARY KEY,
    version bigint NOT NULL,
    at      bigint NOT NULL                    -- kept for ten minutes from then
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX item_commits_at ON hapax.item_commits (at);

-- A lifetime ends with its second: what expires at this time or earlier is over.
CREATE FUNCTION hapax.items_ended(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT coalesce(at, hapax.now()) / 1000 * 1000 $$;

-- Arrays: `tickets` has an element for each commit. All others have one for each item, sorted by key, and `calls` the
-- place of its commit. Acts: 0 put, 1 remove, 2 check. Verdicts: 0 done, 2 stale, with a key that differs. A commit
-- without a verdict could not be decided: another transaction had just inserted one of its keys, or this happened to an
-- earlier commit, which must take effect before it. It is sent again.
CREATE FUNCTION hapax.commit_many(at bigint, not_after bigint, tickets bigint[], calls integer[], keys bytea[],
                                  versions bigint[], acts bigint[], queues bytea[], dues bigint[], expires bigint[],
                                  metas text[], bodies bytea[])
RETURNS TABLE (place integer, verdict integer, became bigint, differs bytea)
LANGUAGE plpgsql SET lock_timeout = '1s' SET work_mem = '32MB' AS $$
DECLARE
    moment   bigint := coalesce(at, hapax.now());
    ended    bigint := hapax.items_ended(moment);
    have     bigint[];  -- of each item: the version that it has, 0: there is no row, -1: the row has expired
    known    bigint[];  -- of each commit: its version, if it was made before
    wrong    integer[]; -- of each commit: the place of an item that differs
    drawn    bigint[];  -- of each commit that is made now: its version
    wanted   bigint;
    inserted bigint;
    lost     integer;
BEGIN
    IF not_after < moment THEN
        RAISE EXCEPTION 'a commit came too late by % ms, or this server''s clock is ahead of the gateway''s',
              moment - not_after USING ERRCODE = 'HX006';
    END IF;
    SELECT array_agg(CASE WHEN o.expires_at BETWEEN 1 AND ended THEN -1 ELSE coalesce(o.version, 0) END ORDER BY u.n)
      INTO have
      FROM unnest(keys) WITH ORDINALITY AS u(key, n)
      LEFT JOIN LATERAL (SELECT x.version, x.expires_at FROM hapax.items x WHERE x.key = u.key FOR UPDATE) o ON true;
    known := ARRAY(SELECT coalesce(d.version, 0)
                     FROM unnest(tickets) WITH ORDINALITY AS c(ticket, i) LEFT JOIN hapax.item_commits d USING (ticket)
                    ORDER BY c.i);
    wrong := ARRAY(SELECT coalesce(min(u.n) FILTER (WHERE u.version <> greatest(u.have, 0)), 0)
                     FROM unnest(calls, versions, have) WITH ORDINALITY AS u(call, version, have, n)
                    GROUP BY u.call ORDER BY u.call);
    drawn := ARRAY(SELECT CASE WHEN c.known = 0 AND c.wrong = 0 THEN nextval('hapax.item_versions') ELSE 0 END
                     FROM unnest(known, wrong) WITH ORDINALITY AS c(known, wrong, i) ORDER BY c.i);

    wanted := (SELECT count(*) FROM unnest(calls, have) AS u(call, have) WHERE u.have = 0 AND drawn[u.call] > 0);
    IF wanted > 0 THEN
        INSERT INTO hapax.items (key, version, queue, due, expires_at, meta, body)
        SELECT u.key, drawn[u.call], nullif(u.queue, ''), u.due, u.expires, u.meta, u.body
          FROM unnest(keys, calls, have, queues, dues, expires, metas, bodies) WITH ORDINALITY
               AS u(key, call, have, queue, due, expires, meta, body, n)
         WHERE u.have = 0 AND drawn[u.call] > 0
         ORDER BY u.n
        ON CONFLICT (key) DO NOTHING;
        GET DIAGNOSTICS inserted = ROW_COUNT;
        IF inserted < wanted THEN
            lost := (SELECT min(u.call)
                       FROM unnest(keys, calls, have) AS u(key, call, have) LEFT JOIN hapax.items o USING (key)
                      WHERE u.have = 0 AND drawn[u.call] > 0 AND o.version IS DISTINCT FROM drawn[u.call]);
            DELETE FROM hapax.items o USING unnest(keys, calls, have) AS u(key, call, have)
             WHERE o.key = u.key AND u.have = 0 AND u.call >= lost AND o.version = drawn[u.call];
            drawn := drawn[:lost - 1] || array_fill(0::bigint, ARRAY[cardinality(drawn) - lost + 1]);
        END IF;
        -- While the insertion waited, one of its keys may have been put and removed under a later version.
        IF (SELECT v.last_value FROM hapax.item_versions v) > (SELECT max(d) FROM unnest(drawn) AS d) THEN
            drawn := ARRAY(SELECT CASE WHEN c.drawn > 0 THEN nextval('hapax.item_versions') ELSE 0 END
                             FROM unnest(drawn) WITH ORDINALITY AS c(drawn, i) ORDER BY c.i);
            UPDATE hapax.items o SET version = drawn[u.call]
              FROM unnest(keys, calls, have) AS u(key, call, have)
             WHERE o.key = u.key AND u.have = 0 AND drawn[u.call] > 0;
        END IF;
    END IF;

    UPDATE hapax.items o
       SET version = drawn[u.call], queue = nullif(u.queue, ''), due = u.due, expires_at = u.expires, meta = u.meta,
           body = u.body
      FROM unnest(keys, calls, acts, have, queues, dues, expires, metas, bodies)
           AS u(key, call, act, have, queue, due, expires, meta, body)
     WHERE o.key = u.key AND u.act = 0 AND u.have <> 0 AND drawn[u.call] > 0;
    DELETE FROM hapax.items o USING unnest(keys, calls, acts, have) AS u(key, call, act, have)
     WHERE o.key = u.key AND (u.act = 1 OR u.act = 2 AND u.have = 0) AND drawn[u.call] > 0;
    INSERT INTO hapax.item_commits (ticket, version, at)
    SELECT c.ticket, c.drawn, moment FROM unnest(tickets, drawn) AS c(ticket, drawn) WHERE c.drawn > 0;

    RETURN QUERY
    SELECT c.i::integer, CASE WHEN c.known > 0 OR c.drawn > 0 THEN 0 ELSE 2 END, greatest(c.known, c.drawn),
           keys[nullif(c.wrong, 0)]
      FROM unnest(known, wrong, drawn) WITH ORDINALITY AS c(known, wrong, drawn, i)
     WHERE c.known > 0 OR c.wrong > 0 OR c.drawn > 0;
    IF EXISTS (SELECT FROM unnest(drawn) AS d WHERE d = 0) THEN PERFORM hapax.witness(); END IF;
END $$;

-- An item that was found. `bytes`: of a scan, how many its meta and body have; -1 of a call whose items are left out.
CREATE TYPE hapax.found_item AS (
    place      bigint,
    bytes      bigint,
    key        bytea,
    version    bigint,
    queue      bytea,
    due        bigint,
    expires_at bigint,
    meta       text,
    body       bytea
);

-- One call returns the items of several, in the order of `keys`, as of one moment. Where the calls before it got 4 MiB,
-- a call's items are left out, and it is sent again.
CREATE FUNCTION hapax.get_many(at bigint, calls integer[], keys bytea[]) RETURNS SETOF hapax.found_item
LANGUAGE plpgsql AS $$
DECLARE
    ended bigint := hapax.items_ended(at);
BEGIN
    RETURN QUERY
    SELECT x.n, CASE WHEN x.fits THEN 0 ELSE -1 END::bigint, x.key, x.version, x.queue, x.due, x.expires_at,
           CASE WHEN x.fits THEN x.meta END, CASE WHEN x.fits THEN x.body END
      FROM (SELECT u.n, o.*, coalesce(sum(octet_length(o.meta) + octet_length(o.body))
                                      OVER (ORDER BY u.call GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                                      0) < 4 << 20 AS fits
              FROM unnest(calls, keys) WITH ORDINALITY AS u(call, key, n) JOIN hapax.items o USING (key)
             WHERE o.expires_at NOT BETWEEN 1 AND ended) x
     ORDER BY x.n;
    IF FOUND THEN PERFORM hapax.witness(); END IF;
END $$;

-- The least value that is greater than all keys, or names of queues, which begin with the prefix.
CREATE FUNCTION hapax.behind_prefix(prefix bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN length(p) = 0 THEN decode(repeat('ff', 513), 'hex')
               ELSE set_byte(p, length(p) - 1, get_byte(p, length(p) - 1) + 1) END
     FROM rtrim(prefix, '\xff'::bytea) AS p $$;

-- A page of items, behind the place that is given (NULL: from the start), and one more, so that its end is known. The
-- first item that doesn't fit into 4 MiB comes without its meta and body, and is the last. In the order of queues it
-- goes from one queue to the next by the index, and reads of each only what is due.
--
-- STABLE: all its queries see the same moment.
CREATE FUNCTION hapax.scan(at bigint, most integer, by_queue boolean, backwards boolean, one_per_queue boolean,
                           with_bodies boolean, prefix bytea, due_until bigint, after_queue bytea, after_due bigint,
                           after_key bytea)
RETURNS SETOF hapax.found_item LANGUAGE plpgsql STABLE AS $$
DECLARE
    ended bigint := hapax.items_ended(at);
    stop  bytea := hapax.behind_prefix(prefix);
    until bigint := CASE due_until WHEN 0 THEN 9223372036854775807 ELSE due_until END;
    page  bytea[];
BEGIN
    IF NOT by_queue AND NOT backwards THEN
        page := ARRAY(SELECT o.key FROM hapax.items o
                        WHERE o.key >= prefix AND o.key < stop AND o.key > coalesce(after_key, '')
                          AND o.expires_at NOT BETWEEN 1 AND ended
                        ORDER BY o.key LIMIT most + 1);
    ELSIF NOT by_queue THEN
        page := ARRAY(SELECT o.key FROM hapax.items o
                        WHERE o.key >= prefix AND o.key < least(stop, after_key)
                          AND o.expires_at NOT BETWEEN 1 AND ended
                        ORDER BY o.key DESC LIMIT most + 1);
    ELSIF NOT backwards THEN
        page := ARRAY(
            WITH RECURSIVE queues AS (
                (SELECT o.queue FROM hapax.items o
                  WHERE o.queue >= greatest(prefix, after_queue) AND o.queue < stop ORDER BY o.queue LIMIT 1)
                UNION ALL
                SELECT n.queue
                  FROM queues q,
                       LATERAL (SELECT o.queue FROM hapax.items o WHERE o.queue > q.queue AND o.queue < stop
                                 ORDER BY o.queue LIMIT 1) n)
            SELECT f.key
              FROM queues q,
                   LATERAL (SELECT o.key FROM hapax.items o
                             WHERE o.queue = q.queue AND o.due <= until AND o.expires_at NOT BETWEEN 1 AND ended
                               AND (o.queue, o.due, o.key) > (coalesce(after_queue, ''), coalesce(after_due, 0),
                                                              coalesce(after_key, ''))
                             ORDER BY o.due, o.key LIMIT CASE WHEN one_per_queue THEN 1 ELSE most + 1 END) f
             LIMIT most + 1);
    ELSE
        page := ARRAY(
            WITH RECURSIVE queues AS (
                (SELECT o.queue FROM hapax.items o
                  WHERE o.queue >= prefix AND o.queue < stop AND o.queue <= coalesce(after_queue, stop)
                  ORDER BY o.queue DESC LIMIT 1)
                UNION ALL
                SELECT n.queue
                  FROM queues q,
                       LATERAL (SELECT o.queue FROM hapax.items o WHERE o.queue >= prefix AND o.queue < q.queue
                                 ORDER BY o.queue DESC LIMIT 1) n)
            SELECT f.key
              FROM queues q,
                   LATERAL (SELECT o.key FROM hapax.items o
                             WHERE o.queue = q.queue AND o.due <= until AND o.expires_at NOT BETWEEN 1 AND ended
                               AND (o.queue, o.due, o.key) < (coalesce(after_queue, stop), coalesce(after_due, 0),
                                                              coalesce(after_key, ''))
                             ORDER BY o.due DESC, o.key DESC LIMIT most + 1) f
             LIMIT most + 1);
    END IF;
    RETURN QUERY
    SELECT x.n, x.bytes, x.key, x.version, x.queue, x.due, x.expires_at,
           CASE WHEN x.n = 1 OR x.total <= 4 << 20 THEN x.meta END,
           CASE WHEN (x.n = 1 OR x.total <= 4 << 20) AND with_bodies THEN x.body END
      FROM (SELECT u.n, o.*, b.bytes, sum(b.bytes) OVER (ORDER BY u.n) AS total
              FROM unnest(page) WITH ORDINALITY AS u(key, n) JOIN hapax.items o USING (key),
                   LATERAL (SELECT octet_length(o.meta)::bigint
                                   + CASE WHEN with_bodies THEN octet_length(o.body) ELSE 0 END) b(bytes)) x
     WHERE x.n <= 2 OR x.total - x.bytes <= 4 << 20
     ORDER BY x.n;
    IF FOUND THEN PERFORM hapax.witness(); END IF;
END $$;

-- The sweep and the counts of version 1, and the same of items.
ALTER FUNCTION hapax.sweep(bigint, integer) RENAME TO sweep_operations;
ALTER FUNCTION hapax.counts() RENAME TO operation_counts;

CREATE FUNCTION hapax.sweep(at bigint, most integer, OUT looked_at integer, OUT gone integer) LANGUAGE plpgsql AS $$
DECLARE
    ended   bigint := hapax.items_ended(at);
    items   integer;
    tickets integer;
BEGIN
    SELECT s.looked_at, s.gone INTO looked_at, gone FROM hapax.sweep_operations(at, most) s;
    DELETE FROM hapax.items o USING (SELECT x.key FROM hapax.items x WHERE x.expires_at > 0 AND x.expires_at <= ended
                                      ORDER BY x.expires_at LIMIT most FOR UPDATE SKIP LOCKED) d
     WHERE o.key = d.key;
    GET DIAGNOSTICS items = ROW_COUNT;
    DELETE FROM hapax.item_commits c USING (SELECT x.ticket FROM hapax.item_commits x WHERE x.at <= ended - 600000
                                             ORDER BY x.at LIMIT most FOR UPDATE SKIP LOCKED) d
     WHERE c.ticket = d.ticket;
    GET DIAGNOSTICS tickets = ROW_COUNT;
    looked_at := greatest(looked_at, items, tickets);
    gone := gone + items;
END $$;

CREATE FUNCTION hapax.counts(OUT live bigint, OUT processing bigint, OUT unknown bigint, OUT bytes bigint,
                             OUT moment bigint) LANGUAGE sql AS
$$ SELECT c.live, c.processing, c.unknown,
          c.bytes + pg_total_relation_size('hapax.items') + pg_total_relation_size('hapax.item_commits'), c.moment
     FROM hapax.operation_counts() c $$;

-- Rows are found by their indexes, in their order: plans are made once for a connection, when the tables may be empty.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'hapax'::regnamespace
                                       AND proname IN ('commit_many', 'get_many', 'scan', 'sweep')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan SET jit = off '
                       'SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off '
                       'SET enable_mergejoin = off SET enable_sort = off', f);
    END LOOP;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA hapax FROM PUBLIC;

UPDATE hapax.store SET version = 3;
