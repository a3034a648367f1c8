-- SPDX-License-Identifier: Apache-2.0
-- The functions that an application calls in its own transaction, version 2: its effect and Hapax's mark are committed
-- together, or neither is (docs/guide/transactional.md).
--
--     hapax.begin(operation)                              the request header Hapax-Operation that the gateway sent
--     hapax.begin(route, principal, key, payload, options)   an operation of the application's own
--     hapax.complete(operation, status, headers, body)    it is done, and this is the response
--     hapax.fail(operation, status, headers, body)        it was refused, and this is the response
--     hapax.release(operation, reason)                    nothing happened: the key may be used again
--
-- Give a role the right to call them, and nothing else:     SELECT hapax.grant_to('my_application');
-- and a gateway that is not the schema's owner its own:     SELECT hapax.grant_to('my_gateway', 'gateway');
--
-- They run with their owner's rights, so that no other role can read the store's secret. If an outcome can't be
-- recorded they raise an exception, so that the transaction is rolled back with its effect:
--
--     HX001  stale: the operation has another epoch by now, or was released
--     HX002  there is no such operation
--     HX003  an argument is wrong
--     HX004  the operation has its outcome already
--     HX005  the rules of its route are being changed: try again
--
-- No gateway waits for an application's transaction. It only locks its operation's row; its writes are staged, and made
-- by a deferred trigger when it commits. A row that was changed and not committed would block a gateway's INSERT … ON
-- CONFLICT, and with it every other request in that statement, for as long as the transaction runs. Nothing is
-- announced either: gateways recheck.

-- Rows of open transactions, each visible to its own only: none of them is ever committed.
CREATE UNLOGGED TABLE hapax.staged (
    op      bytea PRIMARY KEY,
    is_new  boolean NOT NULL,                  -- begun by this transaction
    lease   bigint NOT NULL DEFAULT 0,         -- for an operation that is committed before its outcome
    o       hapax.operations NOT NULL
);

CREATE TYPE hapax.beginning AS (
    verdict   text,    -- run, replay, in_flight, unknown, mismatch, other_caller, not_retained, expired
    operation text,    -- run: for hapax.complete
    status    integer, -- replay: the response
    headers   json,    -- as [["Content-Type", "application/json"], …]
    body      bytea
);

CREATE FUNCTION hapax.little_endian(n bigint) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    big   bytea := int8send(n);
    bytes bytea := big;
BEGIN
    FOR i IN 0 .. 7 LOOP bytes := set_byte(bytes, i, get_byte(big, 7 - i)); END LOOP;
    RETURN bytes;
END $$;

-- CRC-32C, the same as src/base/crc32c.c, four bits at a time.
CREATE FUNCTION hapax.crc32c(bytes bytea) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    steps bigint[] := '{0, 274646895, 549293790, 820201905, 1098587580, 1361435347, 1640403810, 1905808397, 2197175160,
                        2460548119, 2722870694, 2987750089, 3280807620, 3553878443, 3811616794, 4084100981}';
    crc   bigint := 4294967295;
BEGIN
    FOR i IN 0 .. length(bytes) - 1 LOOP
        crc := crc # get_byte(bytes, i);
        crc := crc >> 4 # steps[1 + (crc & 15)];
        crc := crc >> 4 # steps[1 + (crc & 15)];
    END LOOP;
    RETURN crc # 4294967295;
END $$;

-- HMAC-SHA-256 (RFC 2104), the same as src/core/crypto/mac.c: a tag, then each part after its length. The secret with
-- its two paddings is computed once and passed on, because that takes longer than the rest.
CREATE FUNCTION hapax.mac_keys() RETURNS bytea[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    secret bytea := (SELECT s.secret FROM hapax.store s);
    inside bytea := decode(repeat('36', 64), 'hex');
    around bytea := decode(repeat('5c', 64), 'hex');
BEGIN
    FOR i IN 0 .. 31 LOOP
        inside := set_byte(inside, i, get_byte(inside, i) # get_byte(secret, i));
        around := set_byte(around, i, get_byte(around, i) # get_byte(secret, i));
    END LOOP;
    RETURN ARRAY[inside, around];
END $$;

CREATE FUNCTION hapax.mac(keys bytea[], tag text, VARIADIC parts bytea[]) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    message bytea := keys[1] || convert_to(tag, 'UTF8');
    part    bytea;
BEGIN
    FOREACH part IN ARRAY parts LOOP
        message := message || hapax.little_endian(length(part)) || part;
    END LOOP;
    RETURN sha256(keys[2] || sha256(message));
END $$;

-- A number by its exact value in the layout of ECMAScript, the same as src/core/json/number.c.
CREATE FUNCTION hapax.canonical(n numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    plain  text := trim_scale(abs(n))::text;
    whole  text := split_part(plain, '.', 1);
    behind text := split_part(plain, '.', 2);
    digits text := ltrim(whole || behind, '0');
    point  integer := length(digits) - length(behind);
    sign   text := CASE WHEN n < 0 THEN '-' ELSE '' END;
BEGIN
    IF digits = '' THEN RETURN '0'; END IF;
    digits := rtrim(digits, '0');
    IF length(digits) <= point AND point <= 21 THEN RETURN sign || rpad(digits, point, '0'); END IF;
    IF 0 < point AND point <= 21 THEN RETURN sign || left(digits, point) || '.' || substr(digits, point + 1); END IF;
    IF -6 < point AND point <= 0 THEN RETURN sign || '0.' || repeat('0', -point) || digits; END IF;
    RETURN sign || left(digits, 1) || CASE WHEN length(digits) > 1 THEN '.' || substr(digits, 2) ELSE '' END
           || 'e' || CASE WHEN point > 0 THEN '+' ELSE '' END || point - 1;
END $$;

-- RFC 8785, the same as src/core/json/json.c. Members are sorted by UTF-16: the order of UTF-8, except that U+E000 to
-- U+FFFF come last.
CREATE FUNCTION hapax.canonical(value jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE jsonb_typeof(value)
    WHEN 'object' THEN
        RETURN '{' || coalesce((
            SELECT string_agg(to_json(m.key)::text || ':' || hapax.canonical(m.value), ',' ORDER BY replace(replace(
                       regexp_replace(encode(convert_to(m.key, 'UTF8'), 'hex'), '(..)', ' \1', 'g'),
                       ' ee', ' fe'), ' ef', ' ff') COLLATE "C")
              FROM jsonb_each(value) m), '') || '}';
    WHEN 'array' THEN
        RETURN '[' || coalesce((
            SELECT string_agg(hapax.canonical(e.value), ',' ORDER BY e.i)
              FROM jsonb_array_elements(value) WITH ORDINALITY e(value, i)), '') || ']';
    WHEN 'number' THEN RETURN hapax.canonical(value::numeric);
    WHEN 'string' THEN RETURN to_json(value #>> '{}')::text;
    ELSE RETURN value::text;
    END CASE;
END $$;

-- Makes the header lines of a response from an object or from pairs.
CREATE FUNCTION hapax.header_lines(headers json, is_json boolean) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    lines    text := '';
    count    integer := 0;
    has_date boolean := false;
    has_type boolean := false;
    line     record;
BEGIN
    IF json_typeof(headers) NOT IN ('object', 'array', 'null') THEN
        RAISE EXCEPTION 'headers are neither an object nor a list of pairs' USING ERRCODE = 'HX003',
              HINT = 'Give {"Location": "/refunds/rf_1"} or [["Location", "/refunds/rf_1"]].';
    END IF;
    FOR line IN
        SELECT e.key AS name, v.value
          FROM json_each(CASE json_typeof(headers) WHEN 'object' THEN headers ELSE '{}' END) e,
               json_array_elements(CASE json_typeof(e.value) WHEN 'array' THEN e.value
                                                             ELSE json_build_array(e.value) END) v
        UNION ALL
        SELECT CASE WHEN json_typeof(p) = 'array' THEN p ->> 0 END,
               CASE WHEN json_typeof(p) = 'array' THEN p -> 1 END
          FROM json_array_elements(CASE json_typeof(headers) WHEN 'array' THEN headers ELSE '[]' END) p
    LOOP
        IF coalesce(line.name !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$', true) THEN
            RAISE EXCEPTION '"%" is no name of a header', line.name USING ERRCODE = 'HX003';
        ELSIF coalesce(json_typeof(line.value) NOT IN ('string', 'number', 'boolean')
                       OR line.value #>> '{}' ~ '[\x01-\x08\x0a-\x1f\x7f]', true) THEN
            RAISE EXCEPTION 'the value of % is no header''s value', line.name USING ERRCODE = 'HX003',
                  HINT = 'It is a text on one line, or a list of such texts.';
        ELSIF lower(line.name) IN ('connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate',
                                   'proxy-authorization', 'te', 'trailer', 'upgrade', 'expect', 'transfer-encoding',
                                   'content-length') THEN
            RAISE EXCEPTION '% belongs to a connection, not to an answer', line.name USING ERRCODE = 'HX003',
                  HINT = 'Leave it out: every replay is framed anew.';
        ELSIF lower(line.name) = 'set-cookie' THEN
            RAISE EXCEPTION 'Set-Cookie is never replayed' USING ERRCODE = 'HX003',
                  HINT = 'Leave it out: an answer that is kept sets no cookies, not for the first client either.';
        ELSIF lower(line.name) IN ('idempotency-status', 'idempotency-expires', 'idempotent-replayed',
                                   'original-request-time', 'error-code', 'x-correlation-id')
              OR starts_with(lower(line.name), 'hapax-') THEN
            RAISE EXCEPTION '% is a header that Hapax writes', line.name USING ERRCODE = 'HX003',
                  HINT = 'Leave it out.';
        END IF;
        has_date := has_date OR lower(line.name) = 'date';
        has_type := has_type OR lower(line.name) = 'content-type';
        lines := lines || line.name || ': ' || btrim(line.value #>> '{}', E' \t') || E'\r\n';
        count := count + 1;
    END LOOP;
    IF count > 198 THEN -- two more are added here; past 200 a gateway would leave some out
        RAISE EXCEPTION 'an answer has up to 198 header lines, not %', count USING ERRCODE = 'HX003';
    END IF;
    IF is_json AND NOT has_type THEN lines := E'Content-Type: application/json\r\n' || lines; END IF;
    IF NOT has_date THEN
        lines := lines || 'Date: '
                 || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'Dy, DD Mon YYYY HH24:MI:SS "GMT"') || E'\r\n';
    END IF;
    RETURN convert_to(lines, 'UTF8');
EXCEPTION WHEN untranslatable_character THEN -- \u0000
    RAISE EXCEPTION 'headers have a character that no header has' USING ERRCODE = 'HX003';
END $$;

CREATE FUNCTION hapax.header_pairs(lines bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    said text;
BEGIN
    BEGIN
        said := convert_from(lines, 'UTF8');
    EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
        said := convert_from(lines, 'LATIN1');
    END;
    RETURN (SELECT coalesce(json_agg(json_build_array(split_part(line, ': ', 1),
                                                      substr(line, strpos(line, ': ') + 2)) ORDER BY i), '[]')
              FROM unnest(string_to_array(said, E'\r\n')) WITH ORDINALITY u(line, i) WHERE line <> '');
END $$;

CREATE FUNCTION hapax.operation_text(op bytea, epoch bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT encode(op, 'hex') || '.' || epoch $$;

CREATE FUNCTION hapax.operation_parts(operation text, OUT op bytea, OUT epoch bigint) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF coalesce(operation !~ '^[0-9a-f]{32}\.[1-9][0-9]{0,17}$', true) THEN
        RAISE EXCEPTION '"%" is no operation', operation USING ERRCODE = 'HX003',
              HINT = 'Give the value of the request header Hapax-Operation as it came, or what hapax.begin returned. '
                     'A request without that header did not come through the gateway.';
    END IF;
    op := decode(left(operation, 32), 'hex');
    epoch := substr(operation, 34)::bigint;
END $$;

CREATE FUNCTION hapax.raise_stale(operation text, o hapax.operations) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'operation % is stale: %', operation,
          CASE WHEN hapax.operation_text(o.op, o.epoch) <> operation THEN 'it has epoch ' || o.epoch || ' by now'
               ELSE 'it was released' END
          USING ERRCODE = 'HX001',
          HINT = 'Roll this transaction back: the request was given up and may run again under another epoch.';
END $$;

CREATE FUNCTION hapax.raise_settled(operation text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'operation % has its outcome already', operation USING ERRCODE = 'HX004',
          HINT = 'Roll this transaction back: an earlier one is what happened, and hapax.begin gives its answer.';
END $$;

-- The operation as this transaction has begun or settled it, or the row of the table, which it locks until it ends.
CREATE FUNCTION hapax.take(operation text, OUT is_staged boolean, OUT o hapax.operations) LANGUAGE plpgsql AS $$
DECLARE
    wanted record;
BEGIN
    SELECT * INTO wanted FROM hapax.operation_parts(operation);
    SELECT (s.o).* INTO o FROM hapax.staged s WHERE s.op = wanted.op;
    is_staged := o.op IS NOT NULL;
    IF NOT is_staged THEN
        SELECT x.* INTO o FROM hapax.operations x WHERE x.op = wanted.op FOR UPDATE;
    END IF;
    IF o.op IS NULL THEN
        RAISE EXCEPTION 'there is no operation %', operation USING ERRCODE = 'HX002',
              HINT = 'Its lifetime is over, or the gateway''s store is another database than this one.';
    END IF;
    IF o.epoch <> wanted.epoch THEN PERFORM hapax.raise_stale(operation, o); END IF;
END $$;

CREATE FUNCTION hapax.settle(operation text, to_state smallint, answer_status integer, lines bytea, content bytea,
                             why text, its_result text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    taken  record;
    became hapax.operations;
BEGIN
    SELECT * INTO taken FROM hapax.take(operation);
    became := taken.o;
    IF became.state = 0 THEN PERFORM hapax.raise_stale(operation, became); END IF;
    IF became.state NOT IN (1, 4) THEN PERFORM hapax.raise_settled(operation); END IF;
    became.from_state := became.state;
    became.state := to_state;
    became.status := answer_status;
    became.retained := to_state <> 0;
    became.expires_at := CASE to_state WHEN 0 THEN 0 ELSE 1::bigint << 60 END; -- set at COMMIT
    became.headers := lines;
    became.body := content;
    became.reason := why;
    became.result := its_result;
    IF taken.is_staged THEN
        UPDATE hapax.staged s SET o = became WHERE s.op = became.op;
    ELSE
        INSERT INTO hapax.staged (op, is_new, o) VALUES (became.op, false, became);
    END IF;
END $$;

CREATE FUNCTION hapax.answer(operation text, to_state smallint, answer_status integer, headers json, content bytea,
                             is_json boolean, its_result text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lines bytea := hapax.header_lines(coalesce(headers, '{}'), is_json);
BEGIN
    content := coalesce(content, '');
    IF coalesce(answer_status NOT BETWEEN 200 AND 599, true)
       OR answer_status IN (300, 304, 305, 306, 307, 308, 401, 403, 408, 421, 425, 429) THEN
        RAISE EXCEPTION '% is no status that is kept', answer_status USING ERRCODE = 'HX003',
              HINT = 'Nothing happened at such an answer: call hapax.release, or roll back, and answer it yourself.';
    ELSIF to_state = 2 AND answer_status >= 400 THEN
        RAISE EXCEPTION 'an operation is not completed with status %', answer_status USING ERRCODE = 'HX003',
              HINT = 'Record a refusal by hapax.fail.';
    ELSIF to_state = 3 AND answer_status < 400 THEN
        RAISE EXCEPTION 'an operation does not fail with status %', answer_status USING ERRCODE = 'HX003',
              HINT = 'Record a success by hapax.complete.';
    ELSIF answer_status IN (204, 205) AND length(content) > 0 THEN
        RAISE EXCEPTION 'an answer with status % has no body', answer_status USING ERRCODE = 'HX003';
    ELSIF length(lines) + length(content) > 15 << 20 THEN
        RAISE EXCEPTION 'an answer of % bytes is too large', length(lines) + length(content) USING ERRCODE = 'HX003',
              HINT = 'Up to 15 MiB are kept. Answer with a reference to it.';
    ELSIF length(convert_to(its_result, 'UTF8')) > 255 OR its_result ~ '[\x01-\x1f\x7f]' THEN
        RAISE EXCEPTION 'the result''s id is no short text on one line' USING ERRCODE = 'HX003';
    END IF;
    PERFORM hapax.settle(operation, to_state, answer_status, lines, content,
                         CASE to_state WHEN 3 THEN 'answered ' || answer_status ELSE '' END, coalesce(its_result, ''));
END $$;

-- Inserts a new operation, or one that was free. If it was claimed meanwhile, that claim stays.
CREATE FUNCTION hapax.write_new(o hapax.operations) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE hapax.rules IN ROW SHARE MODE;
    IF cardinality(hapax.retired_among(hapax.now(), ARRAY[o.route], ARRAY[o.rule_version])) > 0 THEN
        RAISE EXCEPTION 'the rules of route % are being changed', o.route USING ERRCODE = 'HX005',
              HINT = 'Try the whole transaction again.';
    END IF;
    INSERT INTO hapax.past (since, op, was) SELECT hapax.now(), x.op, hapax.bare(x) FROM hapax.operations x
     WHERE x.op = o.op AND x.epoch < o.epoch AND hapax.is_free(x, hapax.now());
    DELETE FROM hapax.operations x WHERE x.op = o.op AND x.epoch < o.epoch AND hapax.is_free(x, hapax.now());
    INSERT INTO hapax.operations (op, epoch, claim_ticket, write_ticket, changed_at, due_at, lease_until, expires_at,
                                  tombstone_until, lifetime, tombstone, rule_version, state, from_state, attempt,
                                  status, retained, route, reason, result, head, headers, body)
    VALUES (o.op, o.epoch, o.claim_ticket, o.write_ticket, o.changed_at, o.due_at, o.lease_until, o.expires_at,
            o.tombstone_until, o.lifetime, o.tombstone, o.rule_version, o.state, o.from_state, o.attempt,
            o.status, o.retained, o.route, o.reason, o.result, o.head, o.headers, o.body)
    ON CONFLICT (op) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'operation % is stale: it was begun by somebody else meanwhile',
              hapax.operation_text(o.op, o.epoch) USING ERRCODE = 'HX001',
              HINT = 'This transaction was rolled back. Begin again: hapax.begin says what became of the other one.';
    END IF;
END $$;

CREATE FUNCTION hapax.write_outcome(o hapax.operations) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hapax.past (since, op, was)
    SELECT hapax.now(), x.op, hapax.bare(x) FROM hapax.operations x WHERE x.op = o.op AND x.state = 4;
    UPDATE hapax.operations x
       SET write_ticket = o.write_ticket, changed_at = o.changed_at, lease_until = 0, expires_at = o.expires_at,
           tombstone_until = o.tombstone_until, due_at = o.due_at, state = o.state, from_state = o.from_state,
           status = o.status, retained = o.retained, reason = o.reason, result = o.result, headers = o.headers,
           body = o.body
     WHERE x.op = o.op AND x.epoch = o.epoch AND x.state IN (1, 4);
    IF NOT FOUND THEN PERFORM hapax.raise_stale(hapax.operation_text(o.op, o.epoch), o); END IF;
END $$;

-- Runs at COMMIT. Lifetimes begin here. A transaction with a mark commits durably, whatever the session has set: a
-- crash must not lose what a gateway shows afterwards.
CREATE FUNCTION hapax.write_staged() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp
AS $$
DECLARE
    s hapax.staged;
    o hapax.operations;
BEGIN
    DELETE FROM hapax.staged x WHERE x.op = NEW.op RETURNING x.* INTO s;
    o := s.o;
    IF s.op IS NULL OR s.is_new AND o.state = 0 THEN RETURN NULL; END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    o.write_ticket := hashtextextended(gen_random_uuid()::text, 0);
    o.changed_at := hapax.now();
    o.lease_until := CASE o.state WHEN 1 THEN o.changed_at + s.lease ELSE 0 END;
    IF o.state IN (2, 3) THEN
        o.expires_at := o.changed_at + coalesce(nullif(o.lifetime, 0), 86400000);
        o.tombstone_until := CASE WHEN o.tombstone > 0 THEN o.expires_at + o.tombstone ELSE 0 END;
    END IF;
    o.due_at := CASE o.state WHEN 1 THEN o.lease_until WHEN 0 THEN o.changed_at + 60000
                             ELSE hapax.second_up(o.expires_at) END;
    IF s.is_new THEN PERFORM hapax.write_new(o); ELSE PERFORM hapax.write_outcome(o); END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON hapax.staged DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION hapax.write_staged();

CREATE FUNCTION hapax.found_answer(o hapax.operations) RETURNS hapax.beginning LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN o.retained THEN ('replay', NULL, o.status, hapax.header_pairs(o.headers), o.body)::hapax.beginning
               ELSE ('not_retained', NULL, o.status, NULL, NULL)::hapax.beginning END $$;

-- An outcome that is returned here must not be lost either, whatever the session has set: the transaction writes to the
-- log behind it, and waits for its standby.
CREATE FUNCTION hapax.told(verdict hapax.beginning) RETURNS hapax.beginning LANGUAGE plpgsql AS $$
BEGIN
    IF verdict.verdict NOT IN ('run', 'in_flight') THEN
        PERFORM hapax.witness();
        IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
    END IF;
    RETURN verdict;
END $$;

-- Begins an operation that a gateway has claimed. `run`: its row is locked until the transaction ends, so that nothing
-- overtakes it. `replay`: the response that an earlier transaction left. Anything else raises.
CREATE FUNCTION hapax."begin"(operation text) RETURNS hapax.beginning
LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS $$
DECLARE
    o hapax.operations;
BEGIN
    SELECT (t.o).* INTO o FROM hapax.take(operation) t;
    IF o.state = 0 OR o.state = 5 THEN PERFORM hapax.raise_stale(operation, o); END IF;
    IF o.state IN (2, 3) THEN RETURN hapax.told(hapax.found_answer(o)); END IF;
    RETURN ('run', operation, NULL, NULL, NULL)::hapax.beginning;
END $$;

CREATE FUNCTION hapax.check_options(options jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wrong text;
BEGIN
    IF options = '{}' THEN RETURN; END IF;
    IF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'options are not an object' USING ERRCODE = 'HX003',
              HINT = 'Give {"lifetime": "24 hours"}, or leave them out.';
    END IF;
    SELECT name INTO wrong FROM jsonb_object_keys(options) name
     WHERE name NOT IN ('scope', 'credential', 'lifetime', 'tombstone', 'lease', 'wait', 'method', 'host', 'path',
                        'query', 'media_type', 'content_encoding') LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'there is no option "%"', wrong USING ERRCODE = 'HX003',
              HINT = 'Options are scope, credential, lifetime, tombstone, lease, wait, method, host, path, query, '
                     'media_type and content_encoding.';
    END IF;
    SELECT o.name INTO wrong FROM jsonb_each(options) o(name, value)
     WHERE jsonb_typeof(o.value) NOT IN ('null', CASE o.name WHEN 'credential' THEN 'array' WHEN 'wait' THEN 'boolean'
                                                             ELSE 'string' END) LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'option "%" is of the wrong type', wrong USING ERRCODE = 'HX003',
              HINT = 'A credential is a list of texts, wait is true or false, and every other option is a text.';
    END IF;
    IF coalesce(options ->> 'scope', 'both') NOT IN ('both', 'principal', 'route', 'host') THEN
        RAISE EXCEPTION 'scope is both, principal, route or host, not "%"', options ->> 'scope' USING ERRCODE = 'HX003';
    END IF;
    SELECT o.name INTO wrong FROM jsonb_each_text(options) o(name, value)
     WHERE o.name IN ('lifetime', 'lease', 'tombstone')
       AND (o.value::interval < CASE o.name WHEN 'tombstone' THEN '0' ELSE '1 s' END::interval
            OR o.value::interval > '100 years') LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'option "%" must be between a second and 100 years', wrong USING ERRCODE = 'HX003';
    END IF;
EXCEPTION WHEN data_exception THEN
    RAISE EXCEPTION 'an option is no interval: %', SQLERRM USING ERRCODE = 'HX003',
          HINT = 'Give lifetime, lease and tombstone as PostgreSQL writes intervals, such as "24 hours".';
END $$;

-- The principal, the same as src/core/operation/identity.c: `credential` is a kind of credential and what identifies
-- its holder, such as ["basic", "alice"] or ["jwt", "https://issuer", "alice"]. Any other text is a principal of the
-- application's own, and header:NAME:VALUE is the principal that a gateway takes from that header.
CREATE FUNCTION hapax.principal_bytes(principal text, credential jsonb) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    names bytea[];
BEGIN
    IF coalesce(credential, 'null') = 'null' THEN RETURN convert_to(coalesce(principal, ''), 'UTF8'); END IF;
    IF principal IS NOT NULL OR jsonb_array_length(credential) < 2
       OR jsonb_path_exists(credential, '$[*] ? (@.type() != "string")') THEN
        RAISE EXCEPTION 'a credential is a list of its kind and names, and stands in place of the principal'
              USING ERRCODE = 'HX003', HINT = 'Give NULL for the principal, and {"credential": ["basic", "alice"]}.';
    END IF;
    SELECT array_agg(convert_to(e.name, 'UTF8') ORDER BY e.i) INTO names
      FROM jsonb_array_elements_text(credential) WITH ORDINALITY e(name, i);
    IF cardinality(names) = 2 THEN RETURN names[1] || '\x00'::bytea || names[2]; END IF;
    RETURN names[1] || '\x00'::bytea || (
        SELECT string_agg(convert_to(length(name) || ':', 'UTF8') || name, '' ORDER BY i)
          FROM unnest(names[2:]) WITH ORDINALITY u(name, i));
END $$;

-- The id of an operation, the same as hx_operation_of of the gateway.
CREATE FUNCTION hapax.operation_of(keys bytea[], scope text, host bytea, route text, who bytea, key text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    parts bytea[] := ARRAY[CASE scope WHEN 'principal' THEN '' ELSE convert_to(route, 'UTF8') END,
                           CASE scope WHEN 'route' THEN '' ELSE who END, convert_to(key, 'UTF8')];
BEGIN
    IF scope <> 'both' THEN parts := parts || ARRAY[convert_to(scope, 'UTF8'), ''::bytea]; END IF;
    IF scope = 'host' THEN parts := parts || ARRAY[host]; END IF;
    RETURN substring(hapax.mac(keys, 'o', VARIADIC parts) FROM 1 FOR 16);
END $$;

-- A host in its normal form, the same as hx_text_host of src/base/text.c.
CREATE FUNCTION hapax.host_of(options jsonb) RETURNS bytea LANGUAGE sql IMMUTABLE AS
$$ SELECT convert_to(regexp_replace(lower(coalesce(options ->> 'host', '')), ':(80)?$', ''), 'UTF8') $$;

-- Type and charset of a Content-Type, the same as src/core/operation/fingerprint.c. One that can't be parsed, and that
-- of a multipart body, is used as it is.
CREATE FUNCTION hapax.media_type(said text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    token   text := '[!#$%&''*+.^_`|~0-9A-Za-z-]+';
    whole   text := btrim(coalesce(said, ''), E' \t');
    type    text := split_part(whole, ';', 1);
    rest    text := substr(whole, length(type) + 1);
    charset text;
    part    text[]; -- a parameter: its name, its value with or without quotes, the rest
BEGIN
    type := lower(btrim(type, E' \t') COLLATE "C");
    IF type !~ ('^' || token || '/' || token || '$') OR starts_with(type, 'multipart/') THEN RETURN whole; END IF;
    WHILE rest <> '' LOOP
        part := regexp_match(rest, '^;[ \t]*(?:(' || token || ')=(?:"((?:[^"\\]|\\.)*)"|[ \t]*(' || token
                                   || '))[ \t]*)?(;.*)?$');
        IF part IS NULL OR charset IS NOT NULL AND lower(part[1]) = 'charset' THEN RETURN whole; END IF;
        IF lower(part[1]) = 'charset' THEN
            charset := lower(coalesce(part[3], regexp_replace(part[2], '\\(.)', '\1', 'g')) COLLATE "C");
        END IF;
        rest := coalesce(part[4], '');
    END LOOP;
    RETURN type || coalesce(';charset=' || charset, '');
END $$;

-- The fingerprint of a request without preconditions, the same as src/core/operation/fingerprint.c.
CREATE FUNCTION hapax.fingerprint_of(keys bytea[], options jsonb, kind text, content bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN hapax.mac(keys, 'F', convert_to(coalesce(options ->> 'method', ''), 'UTF8'),
                     CASE options ->> 'scope' WHEN 'host' THEN '' ELSE hapax.host_of(options) END,
                     convert_to(coalesce(options ->> 'path', ''), 'UTF8'),
                     CASE WHEN options ->> 'query' IS NULL THEN '' ELSE '?' END::bytea,
                     convert_to(coalesce(options ->> 'query', ''), 'UTF8'),
                     convert_to(hapax.media_type(options ->> 'media_type'), 'UTF8'),
                     convert_to(coalesce(nullif(lower(btrim(options ->> 'content_encoding', E' \t') COLLATE "C"),
                                                'identity'), ''), 'UTF8'), '', '', '',
                     convert_to(kind, 'UTF8'), content);
END $$;

-- The bytes of a record's head, version 3, as a gateway claims it (src/core/operation/record.c), without the short MAC
-- of each part: a gateway detects a mismatch, but can't say which part differs.
CREATE FUNCTION hapax.head_of(op bytea, created bigint, version integer, route text, fingerprint bytea, principal bytea,
                              key bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    name  bytea := convert_to(route, 'UTF8');
    bytes bytea;
BEGIN
    bytes := '\x03010000'::bytea || substring(hapax.little_endian(308 + length(name)) FROM 1 FOR 4)
             || hapax.little_endian(1) || op || hapax.little_endian(created) || hapax.little_endian(created)
             || decode(repeat('00', 24), 'hex') || fingerprint || decode(repeat('00', 64), 'hex') || principal
             || decode(repeat('00', 32), 'hex') || key || decode(repeat('00', 8), 'hex')
             || substring(hapax.little_endian(version) FROM 1 FOR 4) || '\x0100'::bytea
             || decode(repeat('00', 14), 'hex') || substring(hapax.little_endian(length(name)) FROM 1 FOR 4)
             || decode(repeat('00', 8), 'hex') || name;
    RETURN bytes || substring(hapax.little_endian(hapax.crc32c(bytes)) FROM 1 FOR 4);
END $$;

CREATE FUNCTION hapax.milliseconds(span interval) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT (extract(epoch FROM span) * 1000)::bigint $$;

-- Why an operation can't begin; NULL: it can.
CREATE FUNCTION hapax.verdict_of(o hapax.operations, fingerprint bytea, principal bytea) RETURNS hapax.beginning
LANGUAGE plpgsql AS $$
DECLARE
    stands integer := hapax.state_at(o.state, o.expires_at, o.tombstone_until, hapax.now());
BEGIN
    IF o.op IS NULL OR stands = 0 THEN RETURN NULL; END IF;
    IF stands = 5 THEN RETURN ('expired', NULL, NULL, NULL, NULL)::hapax.beginning; END IF;
    IF substring(o.head FROM 169 FOR 32) <> principal THEN
        RETURN ('other_caller', NULL, NULL, NULL, NULL)::hapax.beginning;
    END IF;
    IF substring(o.head FROM 73 FOR 32) <> fingerprint THEN
        RETURN ('mismatch', NULL, NULL, NULL, NULL)::hapax.beginning;
    END IF;
    IF stands IN (2, 3) THEN RETURN hapax.found_answer(o); END IF;
    RETURN (CASE stands WHEN 1 THEN 'in_flight' ELSE 'unknown' END, NULL, NULL, NULL, NULL)::hapax.beginning;
END $$;

CREATE FUNCTION hapax.begin_as(route text, principal text, key text, kind text, content bytea, options jsonb)
RETURNS hapax.beginning LANGUAGE plpgsql AS $$
DECLARE
    keys        bytea[] := hapax.mac_keys();
    who         bytea;
    principal_m bytea;
    print       bytea;
    which       bytea;
    lock        bigint;
    o           hapax.operations;
    verdict     hapax.beginning;
BEGIN
    PERFORM hapax.check_options(options);
    IF coalesce(length(route), 0) = 0 OR length(convert_to(route, 'UTF8')) > 255 OR coalesce(length(key), 0) = 0 THEN
        RAISE EXCEPTION 'an operation has a route and a key' USING ERRCODE = 'HX003',
              HINT = 'A route has up to 255 bytes.';
    END IF;
    who := hapax.principal_bytes(principal, options -> 'credential');
    principal_m := hapax.mac(keys, 'p', who);
    print := hapax.fingerprint_of(keys, options, kind, coalesce(content, ''));
    which := hapax.operation_of(keys, coalesce(options ->> 'scope', 'both'), hapax.host_of(options), route, who, key);
    lock := ('x' || encode(substring(which FROM 1 FOR 8), 'hex'))::bit(64)::bigint;
    SELECT (s.o).* INTO o FROM hapax.staged s WHERE s.op = which; -- begun by this transaction
    IF o.op IS NOT NULL THEN
        verdict := hapax.verdict_of(o, print, principal_m);
        IF verdict.verdict = 'in_flight' THEN verdict.verdict := 'run'; END IF;
        verdict.operation := CASE verdict.verdict WHEN 'run' THEN hapax.operation_text(o.op, o.epoch) END;
        IF verdict.verdict IS NOT NULL THEN RETURN verdict; END IF;
        DELETE FROM hapax.staged s WHERE s.op = which AND s.is_new;
    END IF;
    SELECT x.* INTO o FROM hapax.operations x WHERE x.op = which;
    verdict := hapax.verdict_of(o, print, principal_m);
    IF verdict.verdict IS NOT NULL THEN RETURN hapax.told(verdict); END IF;

    -- Of several transactions that begin it at the same time, all but one wait here, and then see its outcome.
    IF coalesce((options ->> 'wait')::boolean, true) THEN
        PERFORM pg_advisory_xact_lock(lock);
    ELSIF NOT pg_try_advisory_xact_lock(lock) THEN
        RETURN ('in_flight', NULL, NULL, NULL, NULL)::hapax.beginning;
    END IF;
    SELECT x.* INTO o FROM hapax.operations x WHERE x.op = which FOR UPDATE;
    verdict := hapax.verdict_of(o, print, principal_m);
    IF verdict.verdict IS NOT NULL THEN RETURN hapax.told(verdict); END IF;
    RETURN hapax.begin_new(which, route, print, principal_m, hapax.mac(keys, 'k', convert_to(key, 'UTF8')), options);
END $$;

-- Draws an epoch under the lock that hapax.raise_epochs takes. The exception releases the lock and leaves the number
-- drawn: an application's transaction may be long, and claims would wait behind a change of rules that waits for it.
CREATE FUNCTION hapax.draw_epoch() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    drawn bigint;
BEGIN
    LOCK TABLE hapax.rules IN ROW SHARE MODE;
    drawn := nextval('hapax.epochs');
    RAISE EXCEPTION USING ERRCODE = 'HX900';
EXCEPTION WHEN SQLSTATE 'HX900' THEN
    RETURN drawn;
END $$;

CREATE FUNCTION hapax.begin_new(which bytea, its_route text, fingerprint bytea, principal bytea, key bytea,
                                options jsonb) RETURNS hapax.beginning LANGUAGE plpgsql AS $$
DECLARE
    version integer := coalesce((SELECT r.rule_version FROM hapax.rules r WHERE r.route = its_route), 0);
    ticket  bigint := hashtextextended(gen_random_uuid()::text, 0);
    o       hapax.operations;
BEGIN
    o := jsonb_populate_record(NULL::hapax.operations, jsonb_build_object(
        'epoch', hapax.draw_epoch(), 'claim_ticket', ticket, 'write_ticket', ticket, 'changed_at', hapax.now(),
        'lease_until', 0, 'expires_at', 0, 'tombstone_until', 0, 'rule_version', version, 'state', 1, 'from_state', 0,
        'lifetime', hapax.milliseconds(coalesce(options ->> 'lifetime', '24 hours')::interval),
        'tombstone', hapax.milliseconds(coalesce(options ->> 'tombstone', '0')::interval),
        'attempt', 1, 'status', 0, 'retained', false, 'route', its_route, 'reason', '', 'result', ''));
    o.op := which;
    o.head := hapax.head_of(which, o.changed_at, version, its_route, fingerprint, principal, key);
    o.headers := '';
    o.body := '';
    INSERT INTO hapax.staged (op, is_new, lease, o)
    VALUES (which, true, hapax.milliseconds(coalesce(options ->> 'lease', '60 s')::interval), o);
    RETURN ('run', hapax.operation_text(which, o.epoch), NULL, NULL, NULL)::hapax.beginning;
END $$;

CREATE FUNCTION hapax."begin"(route text, principal text, key text, payload text, options jsonb DEFAULT '{}')
RETURNS hapax.beginning LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN RETURN hapax.begin_as(route, principal, key, 'R', convert_to(payload, 'UTF8'), options); END $$;

CREATE FUNCTION hapax."begin"(route text, principal text, key text, payload bytea, options jsonb DEFAULT '{}')
RETURNS hapax.beginning LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN RETURN hapax.begin_as(route, principal, key, 'R', payload, options); END $$;

CREATE FUNCTION hapax."begin"(route text, principal text, key text, payload jsonb, options jsonb DEFAULT '{}')
RETURNS hapax.beginning LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN RETURN hapax.begin_as(route, principal, key, 'J', convert_to(hapax.canonical(payload), 'UTF8'),
                               options); END $$;

CREATE FUNCTION hapax."begin"(route text, principal text, key text, payload json, options jsonb DEFAULT '{}')
RETURNS hapax.beginning LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN RETURN hapax.begin_as(route, principal, key, 'J', convert_to(hapax.canonical(payload::jsonb), 'UTF8'),
                               options); END $$;

CREATE FUNCTION hapax.complete(operation text, status integer, headers json DEFAULT NULL, body text DEFAULT '',
                               result text DEFAULT '')
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.answer(operation, 2::smallint, status, headers, convert_to(body, 'UTF8'), false, result); END $$;

CREATE FUNCTION hapax.complete(operation text, status integer, headers json, body bytea, result text DEFAULT '')
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.answer(operation, 2::smallint, status, headers, body, false, result); END $$;

CREATE FUNCTION hapax.complete(operation text, status integer, headers json, body json, result text DEFAULT '')
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.answer(operation, 2::smallint, status, headers, convert_to(body::text, 'UTF8'), true,
                              result); END $$;

CREATE FUNCTION hapax.complete(operation text, status integer, headers json, body jsonb, result text DEFAULT '')
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.answer(operation, 2::smallint, status, headers, convert_to(body::text, 'UTF8'), true,
                              result); END $$;

CREATE FUNCTION hapax.fail(operation text, status integer, headers json DEFAULT NULL, body text DEFAULT '')
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.answer(operation, 3::smallint, status, headers, convert_to(body, 'UTF8'), false, ''); END $$;

CREATE FUNCTION hapax.fail(operation text, status integer, headers json, body bytea)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.answer(operation, 3::smallint, status, headers, body, false, ''); END $$;

CREATE FUNCTION hapax.fail(operation text, status integer, headers json, body json)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.answer(operation, 3::smallint, status, headers, convert_to(body::text, 'UTF8'), true,
                              ''); END $$;

CREATE FUNCTION hapax.fail(operation text, status integer, headers json, body jsonb)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.answer(operation, 3::smallint, status, headers, convert_to(body::text, 'UTF8'), true,
                              ''); END $$;

CREATE FUNCTION hapax.release(operation text, reason text DEFAULT 'the application released it')
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hapax, pg_temp AS
$$ BEGIN PERFORM hapax.settle(operation, 0::smallint, 0, '', '', left(coalesce(reason, ''), 60), ''); END $$;

-- For the owner of the schema, who needs no right to create roles: grants rights to an existing role.
CREATE FUNCTION hapax.grant_to(role name, purpose text DEFAULT 'application') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    call regprocedure;
BEGIN
    IF purpose NOT IN ('application', 'gateway') THEN
        RAISE EXCEPTION 'rights are for an application or a gateway, not for "%"', purpose USING ERRCODE = 'HX003';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA hapax TO %I', role);
    IF purpose = 'gateway' THEN
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hapax TO %I', role);
        EXECUTE format('GRANT ALL ON ALL SEQUENCES IN SCHEMA hapax TO %I', role);
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hapax TO %I', role);
        RETURN;
    END IF;
    FOR call IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'hapax'::regnamespace
                   AND p.proname IN ('begin', 'complete', 'fail', 'release') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', call, role);
    END LOOP;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA hapax FROM PUBLIC;

UPDATE hapax.store SET version = 2;
