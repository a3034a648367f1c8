-- SPDX-License-Identifier: Apache-2.0
-- The transactional outbox, version 4: an application publishes events in its own transaction, and a gateway's relay
-- delivers what was committed, and only that (docs/guide/events.md). It needs nothing of the migrations before it, so
-- that it can be installed alone in a database that is not Hapax's store: `hapax sql outbox` prints it.
--
--     hapax.publish(type, data, id, tenant, source, correlation_id, deliver_at, stream)    returns the event's id
--
-- Give a role the right to call it, and nothing else:       SELECT hapax.grant_outbox('my_application');
-- and a gateway that is not the schema's owner its own:     SELECT hapax.grant_outbox('my_gateway', 'relay');
--
-- A row carries the id of its transaction. The relay keeps a snapshot, `taken`: what was visible in it has been handed
-- over. It takes the rows that are visible in a later snapshot and were not in that one: those of transactions that ran
-- then, by their ids, and those of later ones. So a transaction that is open for long delays no other, and is found
-- when it commits. The snapshots are compared by what they say of a transaction, not by time or order of rows.
--
-- Rows are never updated or deleted. There are two tables: publish inserts into the active one; when it has grown, the
-- other one, empty, becomes active. The relay always reads both, because a transaction may still insert into the table
-- that was active when it began. A table is truncated under a lock that nobody waits for, if it holds no row that was
-- not taken, and no transaction that began before it was left is running.
--
-- What the relay records is committed without waiting for the disk. A server that crashes and forgets it gives the same
-- rows again, and their events are known by their ids. A truncation is never older than what it depends on.

DO $$ BEGIN IF to_regnamespace('hapax') IS NULL THEN CREATE SCHEMA hapax; END IF; END $$;

CREATE SEQUENCE hapax.outbox_seq AS bigint;

CREATE TABLE hapax.outbox_0 (
    xid   xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq   bigint NOT NULL DEFAULT nextval('hapax.outbox_seq'),
    event text NOT NULL,                       -- JSON, in the form in which the API takes it
    PRIMARY KEY (xid, seq)
) WITH (autovacuum_enabled = off);

CREATE TABLE hapax.outbox_1 (LIKE hapax.outbox_0 INCLUDING ALL) WITH (autovacuum_enabled = off);

-- Apart from hapax.outbox, because each call of publish reads it, and it rarely changes.
CREATE TABLE hapax.outbox_rotation (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    active integer NOT NULL CHECK (active IN (0, 1)),
    xid    xid8 NOT NULL,                      -- the transaction that made it active, and when
    at     timestamptz NOT NULL
);

CREATE TABLE hapax.outbox (
    single     boolean PRIMARY KEY DEFAULT true CHECK (single),
    version    integer NOT NULL,
    cluster    bigint NOT NULL,                -- transaction ids mean nothing on another server
    store      bytea,                          -- mark of the store that takes the events; NULL: none yet
    holder     bigint NOT NULL DEFAULT 0,      -- the gateway whose relay is at work, and until when without a renewal
    held_until timestamptz NOT NULL DEFAULT '-infinity',
    term       bigint NOT NULL DEFAULT 0,      -- how often the holder has changed
    taken      pg_snapshot NOT NULL DEFAULT '1:1:',
    target     pg_snapshot,                    -- the snapshot up to which rows are being taken, in several pages
    at_xid     xid8 NOT NULL DEFAULT '0',      -- of those, up to this row they have been taken
    at_seq     bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- Rows that can't be published, and why. They stay until somebody deletes them.
CREATE TABLE hapax.outbox_refused (
    seq    bigint PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL,
    event  text NOT NULL
);

INSERT INTO hapax.outbox_rotation (active, xid, at) VALUES (0, pg_current_xact_id(), clock_timestamp());
INSERT INTO hapax.outbox (version, cluster) SELECT 1, system_identifier FROM pg_control_system();

CREATE FUNCTION hapax.outbox_check(what text, value text, form text, rule text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF value COLLATE "C" !~ form THEN
        RAISE EXCEPTION 'hapax.publish: "%" must have %, not "%"', what, rule, left(value, 200)
              USING ERRCODE = 'HX003';
    END IF;
END $$;

CREATE FUNCTION hapax.publish(type text, data jsonb, id text DEFAULT NULL, tenant text DEFAULT NULL,
                              source text DEFAULT NULL, correlation_id text DEFAULT NULL,
                              deliver_at timestamptz DEFAULT NULL, stream text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS $$
DECLARE
    name  CONSTANT text := '^[!-~]{1,128}$';
    names CONSTANT text := '1 to 128 visible ASCII characters';
    body  text := data::text;
    event text;
BEGIN
    IF type IS NULL THEN
        RAISE EXCEPTION 'hapax.publish: "type" is missing: name the event, such as ''refund.created'''
              USING ERRCODE = 'HX003';
    ELSIF data IS NULL THEN
        RAISE EXCEPTION 'hapax.publish: "data" is missing: the event''s contents, any JSON' USING ERRCODE = 'HX003';
    ELSIF octet_length(body) > 4194304 THEN
        RAISE EXCEPTION 'hapax.publish: "data" has % bytes; no gateway takes more than 4 MiB, and most less '
                        '(events.payload_max)', octet_length(body) USING ERRCODE = 'HX003';
    ELSIF NOT isfinite(coalesce(deliver_at, '2000-01-01')) OR deliver_at > clock_timestamp() + interval '10 years' THEN
        RAISE EXCEPTION 'hapax.publish: "deliver_at" must be a time within ten years' USING ERRCODE = 'HX003';
    END IF;
    PERFORM hapax.outbox_check('type', type, name, names);
    IF source IS NOT NULL THEN PERFORM hapax.outbox_check('source', source, name, names); END IF;
    IF correlation_id IS NOT NULL THEN
        PERFORM hapax.outbox_check('correlation_id', correlation_id, name, names);
    END IF;
    IF stream IS NOT NULL THEN PERFORM hapax.outbox_check('stream', stream, name, names); END IF;
    IF tenant IS NOT NULL THEN
        PERFORM hapax.outbox_check('tenant', tenant, '^[A-Za-z0-9_-]{1,64}$', '1 to 64 letters, digits, - and _');
    END IF;
    IF id IS NULL THEN
        id := 'evt_' || replace(gen_random_uuid()::text, '-', '');
    ELSE
        PERFORM hapax.outbox_check('id', id, '^[!-,/-~-]{1,128}$', names || ', and no dot');
    END IF;
    event := '{"id":' || to_json(id) || ',"type":' || to_json(type)
             || coalesce(',"tenant":' || to_json(tenant), '') || coalesce(',"source":' || to_json(source), '')
             || coalesce(',"correlation_id":' || to_json(correlation_id), '')
             || coalesce(',"deliver_at":"' || to_char(deliver_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS')
                         || 'Z"', '')
             || coalesce(',"stream":' || to_json(stream), '') || ',"data":' || body || '}';
    IF (SELECT r.active FROM hapax.outbox_rotation r) = 0 THEN
        INSERT INTO hapax.outbox_0 (event) VALUES (event);
    ELSE
        INSERT INTO hapax.outbox_1 (event) VALUES (event);
    END IF;
    RETURN id;
END $$;

-- The rows of both tables that are visible in `target` and were not in `taken`, after a row: the next ones, in order.
-- OFFSET 0 makes the planner look up each transaction, instead of reading the tables in order.
CREATE FUNCTION hapax.outbox_page(taken pg_snapshot, target pg_snapshot, after_xid xid8, after_seq bigint, most integer)
RETURNS TABLE (xid xid8, seq bigint, event text) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT * FROM (
        (SELECT r.* FROM pg_snapshot_xip(taken) AS late(xid),
                LATERAL (SELECT o.xid, o.seq, o.event FROM hapax.outbox_0 o
                          WHERE o.xid = late.xid AND (o.xid, o.seq) > (after_xid, after_seq) OFFSET 0) r
          WHERE pg_visible_in_snapshot(late.xid, target)
          ORDER BY r.xid, r.seq LIMIT most)
        UNION ALL
        (SELECT r.* FROM pg_snapshot_xip(taken) AS late(xid),
                LATERAL (SELECT o.xid, o.seq, o.event FROM hapax.outbox_1 o
                          WHERE o.xid = late.xid AND (o.xid, o.seq) > (after_xid, after_seq) OFFSET 0) r
          WHERE pg_visible_in_snapshot(late.xid, target)
          ORDER BY r.xid, r.seq LIMIT most)
        UNION ALL
        (SELECT o.xid, o.seq, o.event FROM hapax.outbox_0 o
          WHERE o.xid >= pg_snapshot_xmax(taken) AND (o.xid, o.seq) > (after_xid, after_seq)
            AND pg_visible_in_snapshot(o.xid, target)
          ORDER BY o.xid, o.seq LIMIT most)
        UNION ALL
        (SELECT o.xid, o.seq, o.event FROM hapax.outbox_1 o
          WHERE o.xid >= pg_snapshot_xmax(taken) AND (o.xid, o.seq) > (after_xid, after_seq)
            AND pg_visible_in_snapshot(o.xid, target)
          ORDER BY o.xid, o.seq LIMIT most)) x
    ORDER BY x.xid, x.seq LIMIT most;
END $$;

-- One turn of the relay: records the rows of the page before as taken, if this gateway still has the term under which
-- it read them, and returns the next. `who` is a gateway, `mark` its store. The last row has no event. Its seq is the
-- term, or 0: another gateway's relay is at work, or -1: the outbox belongs to another store. Its `note` is the
-- snapshot that belongs to the page; a row whose `note` is not null is the last one of that snapshot.
CREATE FUNCTION hapax.outbox_next(who bigint, mark bytea, lease_ms bigint, of_term bigint, of_target text,
                                  is_end boolean, to_xid text, to_seq bigint, refused_xids text[],
                                  refused_seqs bigint[], reasons text[], most integer, most_bytes bigint)
RETURNS TABLE (xid xid8, seq bigint, event text, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS $$
#variable_conflict use_column
DECLARE
    s      hapax.outbox;
    until  timestamptz;
    upto   pg_snapshot;
BEGIN
    s := (SELECT o FROM hapax.outbox o);
    IF s.store IS DISTINCT FROM mark AND s.store IS NOT NULL THEN
        RETURN QUERY SELECT NULL::xid8, -1::bigint, NULL, NULL;
        RETURN;
    END IF;
    until := clock_timestamp() + lease_ms * interval '1 ms';
    IF s.holder <> who OR of_term > 0 OR s.held_until < until - lease_ms * interval '0.5 ms' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        s := (SELECT o FROM hapax.outbox o FOR UPDATE);
        IF s.holder <> who AND s.held_until > clock_timestamp() THEN
            RETURN QUERY SELECT NULL::xid8, 0::bigint, NULL, NULL;
            RETURN;
        END IF;
        IF s.holder <> who THEN
            s.term := s.term + 1;
            IF s.cluster <> (SELECT system_identifier FROM pg_control_system()) THEN
                s.cluster := (SELECT system_identifier FROM pg_control_system());
                s.taken := '1:1:';
                s.target := NULL;
            END IF;
        ELSIF of_term = s.term THEN
            INSERT INTO hapax.outbox_refused (seq, reason, event)
            SELECT o.seq, u.reason, o.event
              FROM unnest(refused_xids::xid8[], refused_seqs, reasons) AS u(xid, seq, reason),
                   LATERAL (SELECT * FROM hapax.outbox_0 UNION ALL SELECT * FROM hapax.outbox_1) o
             WHERE o.xid = u.xid AND o.seq = u.seq
            ON CONFLICT (seq) DO NOTHING;
            s.target := CASE WHEN NOT is_end THEN of_target::pg_snapshot END;
            s.taken := CASE WHEN is_end THEN of_target::pg_snapshot ELSE s.taken END;
            s.at_xid := to_xid::xid8;
            s.at_seq := to_seq;
        END IF;
        UPDATE hapax.outbox o
           SET cluster = s.cluster, store = mark, holder = who, held_until = until, term = s.term, taken = s.taken,
               target = s.target, at_xid = CASE WHEN s.target IS NULL THEN '0' ELSE s.at_xid END, at_seq = s.at_seq;
    END IF;
    upto := coalesce(s.target, pg_current_snapshot());
    RETURN QUERY
    SELECT p.xid, p.seq, p.event, CASE WHEN p.n = p.total AND p.total < most THEN '' END
      FROM (SELECT o.*, row_number() OVER w AS n, count(*) OVER () AS total,
                   sum(octet_length(o.event)) OVER w - octet_length(o.event) AS before
              FROM hapax.outbox_page(s.taken, upto, CASE WHEN s.target IS NULL THEN '0' ELSE s.at_xid END,
                                     s.at_seq, most) o
            WINDOW w AS (ORDER BY o.xid, o.seq)) p
     WHERE p.before < most_bytes
     ORDER BY p.n;
    RETURN QUERY SELECT NULL::xid8, s.term, NULL, upto::text;
END $$;

-- Makes the other table active, if it is empty and the active one has grown, or is a minute old; else tries to truncate
-- it. Nobody waits for the lock, and it waits for nobody.
CREATE FUNCTION hapax.outbox_rotate(who bigint, grown bigint, OUT rotated boolean, OUT truncated boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS $$
DECLARE
    s    hapax.outbox;
    r    hapax.outbox_rotation := (SELECT o FROM hapax.outbox_rotation o);
    used text := CASE r.active WHEN 0 THEN 'hapax.outbox_0' ELSE 'hapax.outbox_1' END;
    left_behind text := CASE r.active WHEN 0 THEN 'hapax.outbox_1' ELSE 'hapax.outbox_0' END;
    has_more boolean;
BEGIN
    rotated := false;
    truncated := false;
    IF r.at < clock_timestamp() - interval '1 minute' THEN grown := 1; END IF;
    IF pg_relation_size(left_behind) = 0 AND pg_relation_size(used) < grown THEN RETURN; END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'transactions of this role are not read committed by default'
              USING HINT = 'ALTER ROLE … SET default_transaction_isolation = ''read committed''', ERRCODE = 'HX003';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    s := (SELECT o FROM hapax.outbox o WHERE o.holder = who AND o.held_until > clock_timestamp() FOR UPDATE);
    IF s.version IS NULL OR s.target IS NOT NULL THEN RETURN; END IF;
    IF pg_relation_size(left_behind) = 0 THEN
        UPDATE hapax.outbox_rotation o SET active = 1 - r.active, xid = pg_current_xact_id(), at = clock_timestamp();
        rotated := true;
    ELSIF r.xid < pg_snapshot_xmin(pg_current_snapshot()) THEN
        BEGIN
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', left_behind);
            -- All that was ever inserted is visible under this lock, or was rolled back.
            EXECUTE format('SELECT EXISTS (SELECT FROM %1$s o WHERE o.xid >= pg_snapshot_xmax($1)) OR EXISTS (SELECT '
                           'FROM %1$s o WHERE o.xid = ANY (ARRAY(SELECT pg_snapshot_xip($1))))', left_behind)
               INTO has_more USING s.taken;
            IF NOT has_more THEN
                EXECUTE format('TRUNCATE %s', left_behind);
                truncated := true;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END IF;
END $$;

-- Lets another gateway take over at once.
CREATE FUNCTION hapax.outbox_release(who bigint) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = hapax, pg_temp AS
$$ SELECT set_config('synchronous_commit', 'off', true);
   UPDATE hapax.outbox SET holder = 0, held_until = '-infinity' WHERE holder = who $$;

CREATE FUNCTION hapax.grant_outbox(role name, purpose text DEFAULT 'application') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    call regprocedure;
BEGIN
    IF purpose NOT IN ('application', 'relay') THEN
        RAISE EXCEPTION 'rights are for an application or a relay, not for "%"', purpose USING ERRCODE = 'HX003';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA hapax TO %I', role);
    FOR call IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'hapax'::regnamespace
                   AND p.proname = ANY (CASE purpose WHEN 'relay'
                                        THEN '{outbox_next,outbox_rotate,outbox_release}'::name[] ELSE '{publish}' END)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', call, role);
    END LOOP;
END $$;

-- Plans are made when the tables may be empty.
ALTER FUNCTION hapax.outbox_page SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
      SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off;
ALTER FUNCTION hapax.outbox_next SET plan_cache_mode = force_generic_plan SET jit = off;
ALTER FUNCTION hapax.outbox_rotate SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off;

REVOKE EXECUTE ON FUNCTION hapax.publish, hapax.outbox_check, hapax.outbox_page, hapax.outbox_next,
                           hapax.outbox_rotate, hapax.outbox_release, hapax.grant_outbox FROM PUBLIC;

UPDATE hapax.store SET version = 4;
