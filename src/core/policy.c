/* SPDX-License-Identifier: Apache-2.0 */
/* Matching works on normalised paths, of requests and of templates alike: two spellings of one path must not fall under
 * two rules, or a required key could be gone round by writing %72efunds. */
#include "core/policy.h"

#include "base/check.h"
#include "base/crc32c.h"

#include <string.h>

#define METHODS_MAX 16u
#define RULES_SCHEME 1u /* of key, scope and fingerprint as this version computes them */

hx_policy hx_policy_default(void)
{
    return (hx_policy){
        .name = HX_EMPTY,
        .path = HX_EMPTY,
        .because = HX_EMPTY,
        .authorize_method = HX_EMPTY,
        .authorize_target = HX_EMPTY,
        .result = HX_EMPTY,
        .jwt = {.rules = {.issuer = HX_EMPTY, .audience = HX_EMPTY}},
        .mode = HX_MODE_PROTECT,
        .require = true,
        .on_duplicate = HX_DUPLICATE_REPLAY,
        .guarantee = HX_GUARANTEE_NONE,
        .on_unknown = HX_ON_UNKNOWN_HOLD,
        .class = HX_CLASS_USER,
        .retry = hx_retry_policy_of_class(HX_CLASS_USER),
        .key = HX_KEY_RULES_DEFAULT,
        .principals = {{.kind = HX_PRINCIPAL_AUTHORIZATION, .name = HX_EMPTY}},
        .principal_count = 1,
        .lifetime = 24 * HX_HOUR,
        .lease = 60 * HX_SECOND,
        .wait = 10 * HX_SECOND,
        .grace = 60 * HX_SECOND,
        .upstream_timeout = 60 * HX_SECOND,
        .body_bytes_max = 1024u * 1024u,
        .answer_bytes_max = 8u * 1024u * 1024u,
    };
}

static uint32_t mix_number(uint32_t hash, uint32_t number)
{
    const char bytes[4] = {(char)(number & 0xff), (char)(number >> 8 & 0xff), (char)(number >> 16 & 0xff),
                           (char)(number >> 24 & 0xff)};
    return hx_crc32c(hash, (hx_slice){bytes, sizeof bytes});
}

/* Length and format of a key decide which keys are taken, not which operation a key stands for: they may change while
 * operations live. The same holds for the path, as a route is known by its name. */
uint32_t hx_policy_version(const hx_policy *policy)
{
    uint32_t hash = mix_number(0, RULES_SCHEME);
    hash = mix_number(hash, (uint32_t)policy->principal_count);
    for (size_t i = 0; i < policy->principal_count; i++) {
        const hx_principal_source *source = &policy->principals[i];
        hash = mix_number(hash, (uint32_t)source->kind);
        hash = mix_number(hash, (uint32_t)source->name.len);
        for (size_t k = 0; k < source->name.len; k++) {
            char byte = source->name.ptr[k];
            if (source->kind == HX_PRINCIPAL_HEADER) byte = hx_lower(byte); /* cookies' names are case-sensitive */
            hash = hx_crc32c(hash, (hx_slice){&byte, 1});
        }
    }
    return hash;
}

bool hx_method_is_safe(hx_slice method)
{
    switch (method.len) {
    case 3: return memcmp(method.ptr, "GET", 3) == 0;
    case 4: return memcmp(method.ptr, "HEAD", 4) == 0;
    case 5: return memcmp(method.ptr, "TRACE", 5) == 0;
    case 7: return memcmp(method.ptr, "OPTIONS", 7) == 0;
    default: return false;
    }
}

bool hx_policy_is_exposed(const hx_policy *policy)
{
    if (policy->mode == HX_MODE_PROTECT) return false;
    for (size_t i = 0; i < policy->method_count; i++)
        if (!hx_method_is_safe(policy->methods[i])) return true;
    return policy->method_count == 0;
}

static bool method_matches(const hx_policy *policy, hx_slice method)
{
    if (policy->method_count == 0) return !hx_method_is_safe(method);
    for (size_t i = 0; i < policy->method_count; i++)
        if (hx_slice_eq(policy->methods[i], method)) return true;
    return false;
}

/* Segment by segment; "{id}" in the template stands for any one segment that is not empty. */
static bool path_matches(hx_slice template, hx_slice path)
{
    const char *t = template.ptr, *t_end = t + template.len;
    const char *p = path.ptr, *p_end = p + path.len;
    while (t < t_end) {
        if (*t == '{') {
            const char *begin = p;
            while (t < t_end && *t != '/') t++;
            while (p < p_end && *p != '/') p++;
            if (p == begin) return false;
        } else if (p < p_end && *t == *p) {
            t++, p++;
        } else {
            return false;
        }
    }
    return p == p_end;
}

void hx_policy_compile(hx_policy_set *set, hx_arena *arena)
{
    (void)arena;
    set->tree = NULL;
}

bool hx_path_parameter(hx_slice path_template, hx_slice path, hx_slice name, hx_slice *value)
{
    hx_slice left, right;
    while (hx_slice_next(&path_template, '/', &left) && hx_slice_next(&path, '/', &right)) {
        bool is_brace = left.len > 2 && left.ptr[0] == '{' && left.ptr[left.len - 1] == '}';
        if (!is_brace || !hx_slice_eq((hx_slice){left.ptr + 1, left.len - 2}, name)) continue;
        *value = right;
        return true;
    }
    return false;
}

const hx_policy *hx_policy_find(const hx_policy_set *set, hx_slice method, hx_slice path)
{
    for (size_t i = 0; i < set->count; i++) {
        const hx_policy *route = &set->routes[i];
        if (path_matches(route->path, path) && method_matches(route, method)) return route;
    }
    return NULL;
}

static const char *check_method(hx_slice method, const hx_policy *policy)
{
    if (!hx_slice_is_token(method)) return "a method is missing or is not a word, as in \"POST,PATCH /refunds\"";
    for (size_t i = 0; i < method.len; i++)
        if (method.ptr[i] >= 'a' && method.ptr[i] <= 'z') return "methods are in upper case, as in \"POST /refunds\"";
    if (hx_slice_eq(method, HX_LIT("CONNECT"))) return "CONNECT has no path and can't be matched";
    for (size_t i = 0; i < policy->method_count; i++)
        if (hx_slice_eq(policy->methods[i], method)) return "a method is listed twice";
    if (policy->method_count == METHODS_MAX) return "more than 16 methods are listed";
    return NULL;
}

static const char *read_methods(hx_slice list, hx_arena *arena, hx_policy *policy)
{
    policy->methods = hx_arena_alloc(arena, METHODS_MAX * sizeof *policy->methods);
    hx_slice method;
    while (hx_slice_next(&list, ',', &method)) {
        const char *wrong = check_method(method, policy);
        if (wrong) return wrong;
        policy->methods[policy->method_count++] = hx_arena_copy(arena, method);
    }
    return NULL;
}

static const char *check_segment(hx_slice segment)
{
    size_t open = hx_slice_find(segment, '{'), close = hx_slice_find(segment, '}');
    if (open == SIZE_MAX && close == SIZE_MAX) return NULL;
    if (open != 0 || close != segment.len - 1)
        return "braces stand for one whole segment of a path, as in \"/refunds/{id}\"";
    if (!hx_slice_is_token((hx_slice){segment.ptr + 1, segment.len - 2}))
        return "braces hold a name, as in \"/refunds/{id}\"";
    return NULL;
}

static const char *read_path(hx_slice path, hx_arena *arena, hx_policy *policy)
{
    if (path.len == 0) return "the path is missing, as in \"POST /refunds\"";
    if (path.ptr[0] != '/') return "the path must begin with a slash, as in \"POST /refunds\"";
    for (size_t i = 0; i < path.len; i++) {
        if (path.ptr[i] == '?') return "a query can't be matched: leave out \"?\" and what follows";
        if (path.ptr[i] == '#') return "a fragment never reaches a server: leave out \"#\" and what follows";
        if (path.ptr[i] == '*') return "\"*\" is not a wildcard; \"{name}\" stands for one segment of a path";
        if (path.ptr[i] <= ' ' || path.ptr[i] == 0x7f)
            return "the path holds a space or a byte that must be escaped, as in \"%20\"";
    }
    hx_path_error error = hx_path_normalize(path, arena, &policy->path);
    if (error != HX_PATH_OK) return hx_path_error_text(error);
    policy->path = hx_arena_copy(arena, policy->path);
    hx_slice rest = policy->path, segment;
    while (hx_slice_next(&rest, '/', &segment)) {
        const char *wrong = check_segment(segment);
        if (wrong) return wrong;
    }
    return NULL;
}

bool hx_policy_match(hx_slice match, hx_arena *arena, hx_policy *policy, const char **error)
{
    match = hx_slice_trim(match);
    policy->methods = NULL;
    policy->method_count = 0;
    policy->path = HX_EMPTY;
    size_t space = hx_slice_find(match, ' ');
    const char *wrong = NULL;
    if (match.len > 0 && match.ptr[0] == '/') {
        wrong = read_path(match, arena, policy);
    } else {
        wrong = read_methods(hx_slice_first(match, space), arena, policy);
        if (!wrong && space == SIZE_MAX) wrong = "the path is missing, as in \"POST /refunds\"";
        if (!wrong) wrong = read_path(hx_slice_trim(hx_slice_from(match, space)), arena, policy);
    }
    if (wrong) *error = wrong;
    return wrong == NULL;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = hx_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_unreserved(char c)
{
    return (c >= '0' && c <= '9') || (hx_lower(c) >= 'a' && hx_lower(c) <= 'z') || c == '-' || c == '.' || c == '_' ||
           c == '~';
}

static bool is_dot_segment(hx_slice segment)
{
    return (segment.len == 1 && segment.ptr[0] == '.') ||
           (segment.len == 2 && segment.ptr[0] == '.' && segment.ptr[1] == '.');
}

/* One pass over the bytes, because nearly every path is plain. */
static bool is_plain(hx_slice path)
{
    size_t begin = 1;
    for (size_t i = 1; i <= path.len; i++) {
        if (i < path.len && path.ptr[i] == '%') return false;
        if (i < path.len && path.ptr[i] != '/') continue;
        hx_slice segment = {path.ptr + begin, i - begin};
        if (is_dot_segment(segment) || (segment.len == 0 && i < path.len)) return false;
        begin = i + 1;
    }
    return true;
}

typedef struct {
    char *ptr;
    size_t len;
    hx_path_error error; /* the first */
} output;

static void note(output *out, hx_path_error error)
{
    if (out->error == HX_PATH_OK) out->error = error;
}

static void put_decoded(output *out, hx_slice segment)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < segment.len; i++) {
        char c = segment.ptr[i];
        int high = -1, low = -1;
        if (c == '%' && segment.len - i > 2) {
            high = hex_digit(segment.ptr[i + 1]);
            low = hex_digit(segment.ptr[i + 2]);
        }
        if (c != '%') {
            out->ptr[out->len++] = c;
        } else if (high < 0 || low < 0) {
            note(out, HX_PATH_BAD_ESCAPE);
            out->ptr[out->len++] = c;
        } else {
            char decoded = (char)(high * 16 + low);
            if (decoded == '/') note(out, HX_PATH_ENCODED_SLASH);
            if (is_unreserved(decoded)) {
                out->ptr[out->len++] = decoded;
            } else { /* %3a and %3A are the same byte */
                out->ptr[out->len++] = '%';
                out->ptr[out->len++] = digits[high];
                out->ptr[out->len++] = digits[low];
            }
            i += 2;
        }
    }
}

/* `begin` is where the segment stands that was just put. Returns whether it was one with dots, which is gone then, and
 * with ".." the one before it. */
static bool drop_dots(output *out, size_t begin)
{
    hx_slice segment = {out->ptr + begin, out->len - begin};
    if (!is_dot_segment(segment)) return false;
    out->len = begin;
    if (segment.len == 2 && out->len > 1) {
        out->len--; /* the slash behind the segment before */
        while (out->ptr[out->len - 1] != '/') out->len--;
    }
    return true;
}

hx_path_error hx_path_normalize(hx_slice path, hx_arena *arena, hx_slice *normalized)
{
    if (path.len == 0 || path.ptr[0] != '/' || is_plain(path)) { /* "*" and what isn't a path is left alone */
        *normalized = path;
        return HX_PATH_OK;
    }
    output out = {.ptr = hx_arena_alloc(arena, path.len)}; /* it never gets longer */
    out.ptr[out.len++] = '/';
    hx_slice rest = hx_slice_from(path, 1), segment;
    while (hx_slice_next(&rest, '/', &segment)) {
        bool last = rest.ptr == NULL;
        size_t begin = out.len;
        put_decoded(&out, segment);
        if (drop_dots(&out, begin)) continue;
        if (segment.len == 0 && !last) note(&out, HX_PATH_EMPTY_SEGMENT); /* left out, as many servers do */
        if (segment.len > 0 && !last) out.ptr[out.len++] = '/';
    }
    *normalized = (hx_slice){out.ptr, out.len};
    return out.error;
}

const char *hx_path_error_text(hx_path_error error)
{
    switch (error) {
    case HX_PATH_OK: return "The path is well-formed.";
    case HX_PATH_ENCODED_SLASH: return "The path holds an encoded slash (%2F).";
    case HX_PATH_EMPTY_SEGMENT: return "The path holds an empty segment (//).";
    case HX_PATH_BAD_ESCAPE: return "The path holds a \"%\" without two hexadecimal digits.";
    }
    hx_check_failed(__FILE__, __LINE__, "a path error that is known");
}
