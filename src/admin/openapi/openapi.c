/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenAPI document, from the tables: routes.def has the requests with their scopes and texts, requests.def what
 * they take and answer, schemas.def the objects, problems.def the errors.
 *
 * An operation of the document is a method of a path. Rows of routes.def that differ in their query only (?NAME) are
 * one operation there: its parameters, responses, problems and scopes are those of all of them. */
#include "admin/call.h"
#include "admin/openapi/schema.h"
#include "base/check.h"
#include "core/json/json_writer.h"

#include <stdio.h>
#include <string.h>

#define ROWS_MAX 4u /* that make one operation */
#define PARAMETERS_MAX 32u

typedef struct {
    const char *parameters, *body, *responses, *problems;
} request_row;

enum {
#define X(handler, parameters, body, responses, problems) ROW_##handler,
#include "admin/openapi/requests.def"
#undef X
};

static const request_row requests[] = {
#define X(handler, parameters, body, responses, problems) {parameters, body, responses, problems},
#include "admin/openapi/requests.def"
#undef X
};

/* By the order of routes.def. A handler without a row in requests.def is an error here. */
static const struct {
    const char *handler;
    const request_row *request;
} about[] = {
#define X(method, path, handler, scope, reach, text) {#handler, &requests[ROW_##handler]},
#include "admin/routes.def"
#undef X
};

#define ROUTE_COUNT (sizeof about / sizeof about[0])

static const struct {
    const char *id, *code;
    unsigned status;
} problems[] = {
#define X(id, code, status, title, hint) {#id, code, status},
#include "admin/problems.def"
#undef X
};

/* The rows of one operation. */
typedef struct {
    const hx_admin_route *routes; /* the whole table */
    size_t rows[ROWS_MAX], count;
} operation;

static hx_slice path_of(const hx_admin_route *route)
{
    hx_slice path = hx_slice_of(route->path);
    return hx_slice_first(path, hx_slice_find(path, '?'));
}

static bool is_same_path(const hx_admin_route *a, const hx_admin_route *b)
{
    return hx_slice_eq(path_of(a), path_of(b));
}

static bool has_word(const char *words, const char *wanted)
{
    hx_slice rest = hx_slice_of(words), word;
    while (hx_slice_next(&rest, ' ', &word))
        if (hx_slice_eq(word, hx_slice_of(wanted))) return true;
    return false;
}

/* Ends the line, and with it the member before, if there is one. */
static void put_line(hx_buf *out)
{
    hx_buf_puts(out, out->data[out->len - 1] == '{' ? "\n" : ",\n");
}

static void put_parameter(hx_buf *out, const char *in, hx_slice name, hx_slice type, bool is_required)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "name", name);
    hx_json_put_text(out, "in", hx_slice_of(in));
    if (is_required) hx_json_put_bool(out, "required", true);
    hx_schema_put_type(out, "schema", type);
    hx_json_close(out, '}');
}

static void put_path_parameters(hx_buf *out, hx_slice path)
{
    hx_slice part;
    hx_json_open(out, "parameters", '[');
    while (hx_slice_next(&path, '/', &part)) {
        if (!hx_slice_starts(part, HX_LIT("{"))) continue;
        hx_slice name = hx_slice_first(hx_slice_from(part, 1), part.len - 2);
        put_parameter(out, "path", name, hx_slice_eq(name, HX_LIT("id")) ? HX_LIT("id") : HX_LIT("text"), true);
    }
    hx_json_close(out, ']');
}

static void put_parameters(hx_buf *out, const operation *op)
{
    hx_slice seen[PARAMETERS_MAX];
    size_t count = 0;
    hx_json_open(out, "parameters", '[');
    for (size_t row = 0; row < op->count; row++) {
        hx_schema_walk walk = hx_schema_walk_over(about[op->rows[row]].request->parameters);
        hx_schema_member member;
        while (hx_schema_next(&walk, &member)) {
            size_t i = 0;
            while (i < count && !hx_slice_eq(seen[i], member.name)) i++;
            if (i < count) continue;
            HX_CHECK(count < PARAMETERS_MAX);
            seen[count++] = member.name;
            bool is_header = hx_slice_starts(member.name, HX_LIT("@"));
            put_parameter(out, is_header ? "header" : "query", hx_slice_from(member.name, is_header ? 1 : 0),
                          member.type, member.is_required);
        }
    }
    hx_json_close(out, ']');
}

static void put_content(hx_buf *out, const char *media, hx_slice type)
{
    hx_json_open(out, "content", '{');
    hx_json_open(out, media, '{');
    hx_schema_put_type(out, "schema", type);
    hx_json_close(out, '}');
    hx_json_close(out, '}');
}

static void put_body(hx_buf *out, const operation *op)
{
    hx_slice body = hx_slice_of(about[op->rows[0]].request->body);
    if (body.len == 0) return;
    hx_json_open(out, "requestBody", '{');
    hx_json_put_bool(out, "required", hx_schema_has_required(hx_slice_first(body, hx_slice_find(body, '|'))));
    put_content(out, "application/json", body);
    hx_json_close(out, '}');
}

/* All that is answered with this status: one schema for JSON, of a choice where there are several, and media types. */
static void put_success(hx_buf *out, const operation *op, unsigned status)
{
    hx_arena arena = {0};
    hx_slice json = HX_EMPTY, stream = HX_EMPTY;
    for (size_t row = 0; row < op->count; row++) {
        hx_slice rest = hx_slice_of(about[op->rows[row]].request->responses), part, number;
        uint64_t found;
        while (hx_slice_next(&rest, ',', &part)) {
            part = hx_slice_trim(part);
            if (!hx_slice_next(&part, ' ', &number) || !hx_slice_to_u64(number, &found) || found != status) continue;
            bool is_media = hx_slice_find(part, '/') != SIZE_MAX;
            if (is_media)
                stream = part;
            else
                json = json.len > 0 ? hx_arena_printf(&arena, "%.*s|%.*s", HX_FMT(json), HX_FMT(part)) : part;
        }
    }
    if (json.len > 0) {
        put_line(out);
        hx_schema_put_name(out, hx_arena_printf(&arena, "%u", status));
        hx_json_open(out, NULL, '{');
        hx_slice first = hx_slice_first(json, hx_slice_find(json, '|'));
        hx_json_put_text(out, "description", hx_slice_of(hx_schema_text(first)));
        hx_json_open(out, "content", '{');
        hx_json_open(out, "application/json", '{');
        hx_schema_put_type(out, "schema", json);
        hx_json_close(out, '}');
        if (stream.len > 0) {
            hx_schema_put_name(out, stream);
            hx_json_put_raw(out, NULL, HX_LIT("{\"schema\":{\"type\":\"string\"}}"));
        }
        hx_json_close(out, '}');
        hx_json_close(out, '}');
    }
    hx_arena_free(&arena);
}

/* Whether a request of this row may get the problem. */
static bool may_get(const operation *op, size_t row, hx_admin_problem problem)
{
    const hx_admin_route *route = &op->routes[row];
    bool is_for_tokens = route->scope != HX_SCOPE_SOCKET, is_of_tenant = route->reach == HX_REACH_TENANT;
    switch (problem) {
    case HX_ADMIN_MALFORMED:
    case HX_ADMIN_NO_TOKEN:
    case HX_ADMIN_BAD_TOKEN:
    case HX_ADMIN_WRONG_HOST:
    case HX_ADMIN_WRONG_ORIGIN:
    case HX_ADMIN_UNREAD: return true;
    case HX_ADMIN_NO_SCOPE: return is_for_tokens && route->scope != HX_SCOPE_ANY;
    case HX_ADMIN_SOCKET_ONLY: return !is_for_tokens;
    case HX_ADMIN_WHOLE_STORE: return is_for_tokens && !is_of_tenant;
    case HX_ADMIN_OTHER_TENANT: return is_of_tenant;
    case HX_ADMIN_TOO_LARGE:
    case HX_ADMIN_OVERLOADED: return about[row].request->body[0] != '\0';
    default: return has_word(about[row].request->problems, problems[problem].id);
    }
}

static bool operation_may_get(const operation *op, hx_admin_problem problem)
{
    for (size_t row = 0; row < op->count; row++)
        if (may_get(op, op->rows[row], problem)) return true;
    return false;
}

/* Several problems may have one code. */
static bool is_told_before(const operation *op, hx_admin_problem problem)
{
    for (hx_admin_problem i = 0; i < problem; i++)
        if (problems[i].status == problems[problem].status && strcmp(problems[i].code, problems[problem].code) == 0 &&
            operation_may_get(op, i))
            return true;
    return false;
}

/* The response of a status, with the codes that its problems may have; nothing if there are none. */
static void put_problem(hx_buf *out, const operation *op, unsigned status)
{
    size_t count = 0;
    for (hx_admin_problem i = 0; i < HX_ADMIN_PROBLEM_COUNT; i++) {
        if (problems[i].status != status || !operation_may_get(op, i) || is_told_before(op, i)) continue;
        if (count++ == 0) {
            char name[16];
            (void)snprintf(name, sizeof name, "%u", status);
            put_line(out);
            hx_json_open(out, name, '{');
            hx_json_put_text(out, "description", HX_LIT("A problem."));
            hx_json_put_raw(out, "headers", HX_LIT("{\"Error-Code\":{\"schema\":{\"type\":\"string\"}}}"));
            hx_buf_puts(out, ",\"content\":{\"application/problem+json\":{\"schema\":{\"allOf\":[{\"$ref\":"
                             "\"#/components/schemas/Problem\"}],\"properties\":{\"error_code\":{\"enum\":[");
        }
        hx_json_put_text(out, NULL, hx_slice_of(problems[i].code));
    }
    if (count > 0) hx_buf_puts(out, "]}}}}}}");
}

static void put_responses(hx_buf *out, const operation *op)
{
    hx_json_open(out, "responses", '{');
    for (unsigned status = 200; status < 300; status++) put_success(out, op, status);
    for (unsigned status = 400; status < 600; status++) put_problem(out, op, status);
    hx_json_close(out, '}');
}

/* The scopes of its rows: any of them, as each row asks for one. The admin socket asks for none. */
static void put_security(hx_buf *out, const operation *op)
{
    hx_json_open(out, "security", '[');
    for (size_t row = 0; row < op->count; row++) {
        unsigned scope = op->routes[op->rows[row]].scope;
        if (scope == HX_SCOPE_SOCKET) continue;
        hx_json_open(out, NULL, '{');
        hx_json_open(out, "token", '[');
        if (scope != HX_SCOPE_ANY) hx_json_put_text(out, NULL, hx_slice_of(hx_admin_scope_name(scope)));
        hx_json_close(out, ']');
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
}

static void put_operation(hx_buf *out, const operation *op)
{
    const hx_admin_route *first = &op->routes[op->rows[0]];
    hx_arena arena = {0};
    hx_slice text = hx_slice_of(first->text), tag = hx_slice_from(path_of(first), sizeof "/v1/" - 1);
    for (size_t row = 1; row < op->count; row++)
        text = hx_arena_printf(&arena, "%.*s\n\n%s", HX_FMT(text), op->routes[op->rows[row]].text);
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "operationId", hx_slice_of(about[op->rows[op->count - 1]].handler));
    hx_json_open(out, "tags", '[');
    hx_json_put_text(out, NULL, hx_slice_first(tag, hx_slice_find(tag, '/')));
    hx_json_close(out, ']');
    hx_json_put_text(out, "description", text);
    hx_json_put_text(out, "x-hapax-scope", hx_slice_of(hx_admin_scope_name(first->scope)));
    hx_json_put_text(out, "x-hapax-about", first->reach == HX_REACH_TENANT ? HX_LIT("tenant") : HX_LIT("store"));
    put_security(out, op);
    put_parameters(out, op);
    put_body(out, op);
    put_responses(out, op);
    hx_json_close(out, '}');
    hx_arena_free(&arena);
}

/* The rows with the method and the path of row `first`; none if an earlier row has both. */
static operation collect(const hx_admin_route *routes, size_t first)
{
    operation op = {.routes = routes};
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (!is_same_path(&routes[i], &routes[first]) || strcmp(routes[i].method, routes[first].method) != 0) continue;
        if (i < first) return (operation){.routes = routes};
        HX_CHECK(op.count < ROWS_MAX);
        op.rows[op.count++] = i;
    }
    return op;
}

static void put_path(hx_buf *out, const hx_admin_route *routes, size_t first)
{
    for (size_t i = 0; i < first; i++)
        if (is_same_path(&routes[i], &routes[first])) return;
    put_line(out);
    hx_schema_put_name(out, path_of(&routes[first]));
    hx_json_open(out, NULL, '{');
    put_path_parameters(out, path_of(&routes[first]));
    for (size_t i = first; i < ROUTE_COUNT; i++) {
        if (!is_same_path(&routes[i], &routes[first])) continue;
        operation op = collect(routes, i);
        if (op.count == 0) continue;
        char method[16] = {0};
        for (size_t j = 0; routes[i].method[j] && j < sizeof method - 1; j++) method[j] = hx_lower(routes[i].method[j]);
        put_line(out);
        hx_schema_put_name(out, hx_slice_of(method));
        put_operation(out, &op);
    }
    hx_json_close(out, '}');
}

void hx_admin_openapi(hx_buf *out)
{
    size_t count;
    const hx_admin_route *routes = hx_admin_routes(&count);
    hx_buf_puts(out, "{\"openapi\":\"3.1.0\",\n\"info\":{\"title\":\"Hapax\",\"version\":\"" HAPAX_VERSION
                     "\",\"description\":\"The admin socket and the API of a gateway. Errors are application/"
                     "problem+json; on the admin socket no token is needed. x-hapax-scope is the scope of the token, "
                     "and x-hapax-about says whether a token that is bound to a tenant may make the request.\","
                     "\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"}},\n"
                     "\"servers\":[{\"url\":\"/\"}],\n\"paths\":{");
    for (size_t i = 0; i < count; i++) put_path(out, routes, i);
    hx_buf_puts(out, "},\n\"components\":{\"securitySchemes\":{\"token\":{\"type\":\"http\",\"scheme\":"
                     "\"bearer\",\"description\":\"A token of `hapax tokens create`, with the scope.\"}},\n");
    hx_schema_put_all(out);
    hx_buf_puts(out, "}}\n");
}

void hx_admin_show_openapi(hx_admin_call *call)
{
    hx_buf out;
    hx_buf_init(&out, call->arena, HX_ADMIN_OPENAPI_BYTES);
    hx_admin_openapi(&out);
    hx_admin_answer(call, hx_buf_slice(&out));
}
