/* SPDX-License-Identifier: Apache-2.0 */
/* How a lane's connection begins, and what is said of its end. Where there are several hosts, one that hangs must not
 * keep the others from being tried: libpq counts its time-out per host only where it may wait itself, so a lane
 * that gave up waiting begins its next try with the next host, and stays with what worked. */
#include "store/postgres/postgres.h"

#include "base/check.h"
#include "base/log.h"

#include <string.h>

const char *hx_postgres_parameter(const hx_postgres *p, const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; p->keywords[i]; i++)
        if (strcmp(p->keywords[i], name) == 0) value = p->values[i];
    return value && value[0] ? value : NULL;
}

PGconn *hx_lane_connect(const hx_lane *lane, const hx_names *found)
{
    const hx_postgres *p = lane->store;
    const char *const names[] = {"host", "hostaddr", "port"};
    const char *const lists[] = {found ? found->host : hx_postgres_parameter(p, names[0]),
                                 found ? found->hostaddr : hx_postgres_parameter(p, names[1]),
                                 found ? found->port : hx_postgres_parameter(p, names[2])};
    char turned[3][HX_NAMES_BYTES];
    hx_arena arena = {0};
    size_t count = 0;
    while (p->keywords[count]) count++;
    const char **keywords = hx_arena_zalloc(&arena, (count + 4) * sizeof *keywords);
    const char **values = hx_arena_zalloc(&arena, (count + 4) * sizeof *values);
    memcpy(keywords, p->keywords, count * sizeof *keywords);
    memcpy(values, p->values, count * sizeof *values);
    for (size_t i = 0; i < 3; i++) { /* the last one of a name holds */
        if (!lists[i]) continue;
        keywords[count] = names[i];
        values[count++] = hx_names_turn(lists[i], lane->turns, turned[i]);
    }
    PGconn *conn = p->pq->connectStartParams(keywords, values, 0);
    if (!conn) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_arena_free(&arena);
    return conn;
}

/* What libpq says has several lines. */
static void log_reason(const char *why)
{
    char line[512];
    size_t len = 0;
    for (; *why && len < sizeof line - 1; why++) {
        bool is_space = (unsigned char)*why <= ' ';
        if (!is_space || (len > 0 && line[len - 1] != ' ')) line[len++] = is_space ? ' ' : *why;
    }
    while (len > 0 && line[len - 1] == ' ') len--;
    hx_log_str("reason", (hx_slice){line, len});
}

static const char *advice_to_connect(const char *why)
{
    if (strstr(why, "authentication")) return "give the user and password in the store's URL, or as libpq finds them";
    if (strstr(why, "read-only") || strstr(why, "standby"))
        return "this is no primary: name the primary, or both, in the store's URL, or promote this one";
    if (strstr(why, "does not exist")) return "correct the store's URL, or create what it names";
    if (strstr(why, "too many")) return "raise max_connections, or put a pooler before the server";
    return "see whether the server runs and is the one in the store's URL; it is tried again and again";
}

void hx_lane_say(const hx_lane *lane, const char *why)
{
    bool is_up = lane->state == HX_LANE_READY, was_connected = is_up && !lane->will_set_up;
    if (!was_connected && atomic_exchange(&lane->store->is_down, true)) return;
    hx_log_begin(was_connected ? HX_EVENT_server_connection_lost
                 : is_up       ? HX_EVENT_server_unusable
                               : HX_EVENT_server_unreachable);
    log_reason(why);
    if (!is_up) hx_log_text("hint", advice_to_connect(why));
    hx_log_end();
}

void hx_lane_say_that_it_works(const hx_lane *lane)
{
    if (!atomic_exchange(&lane->store->is_down, false)) return;
    hx_log(HX_EVENT_server_usable);
}
