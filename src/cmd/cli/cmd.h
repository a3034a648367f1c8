/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands (commands.c), and what they share: reading flags, and reading a configuration. A command is a
 * row and a function, which gets its own name as argv[0] and returns an exit code of base/check.h. */
#ifndef HX_CMD_CLI_CMD_H
#define HX_CMD_CLI_CMD_H

#include "base/memory/arena.h"
#include "config/config.h"

#include <stdio.h>

#define HX_CMD_FLAGS_MAX 32u

typedef struct {
    const char *name;     /* without its dashes; NULL ends a list */
    const char *argument; /* what it takes, "ADDRESS"; NULL for a switch */
    const char *text;     /* one line for the help */
    int letter;           /* a short form, or 0 */
} hx_cmd_flag;

/* A line of a list in the help: an action, an example, an exit code, a file or a variable. */
typedef struct {
    const char *term; /* NULL ends a list */
    const char *text;
} hx_cmd_entry;

/* `hapax help NAME`, docs/reference/commands.md and the manual pages (tools/reference) are made from this row. All but
 * the first four members may be NULL. The help breaks texts into lines. */
typedef struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* one line for the overview */
    const char *usage;   /* "hapax check FILE [--strict]"; a line for each way */
    const char *details;
    const hx_cmd_entry *actions;
    const hx_cmd_flag *flags; /* --help is everyone's */
    const hx_cmd_entry *examples;
    const hx_cmd_entry *exits;
    const hx_cmd_entry *files;
    const hx_cmd_entry *environment;
    bool hidden;
} hx_cmd;

const hx_cmd *hx_cmd_find(const char *name); /* NULL when there is none; --help and --version are commands too */
const hx_cmd *hx_cmd_all(size_t *count);
extern const hx_cmd hx_cmd_program; /* the row of `hapax` itself, which has no name and no function */

/* Reads the flags that the row of the command argv[0] names; for each calls take(user, flag's name, value or NULL),
 * which may be NULL where the row has none. Returns -1 to go on, or the exit code to end with: 0 after --help,
 * HX_EXIT_USAGE after a flag that is unknown, lacks its value or has one too many, which was said on standard error.
 * Operands are moved to the end: *operands is the index of the first; more than `operands_max` are refused, fewer are
 * the command's own affair. */
int hx_cmd_flags(int argc, char **argv, int operands_max, void (*take)(void *user, const char *flag, const char *value),
                 void *user, int *operands) HX_MUST_USE;

/* Where the value of a flag goes, for use in `take`: a text, or a switch. A row without a name ends a list. */
typedef struct {
    const char *name;
    const char **text;
    bool *is_set;
} hx_cmd_target;

/* Sets the target of this flag, if it has one. */
void hx_cmd_take(const hx_cmd_target *targets, const char *flag, const char *value);

/* "hapax serve: MESSAGE" and "Try `hapax help serve`." on standard error; returns HX_EXIT_USAGE. */
int hx_cmd_misused(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The flags that every command which reads a configuration has: --config, --upstream, --listen, --api, --store,
 * --workers, --require-key, --dev. */
/* clang-format off: it would spread the last row over three lines */
#define HX_CMD_CONFIG_FLAGS                                                                                            \
    {"config", "FILE", "read this configuration; flags override it", 'c'},                                             \
        {"upstream", "URL", "the application: http://127.0.0.1:3000 or unix:/run/app.sock", 'u'},                      \
        {"listen", "ADDRESS", "127.0.0.1:8080, [::1]:8080 or unix:/run/hapax.sock; may be repeated", 'l'},             \
        {"api", "ADDRESS", "where programs use the API, with tokens: 127.0.0.1:8081", 0},                              \
        {"store", "STORE", "journal:DIR, sqlite:FILE, postgres://HOST/DATABASE, or memory: for tests", 's'},           \
        {"workers", "N", "threads that serve requests", 'w'},                                                          \
        {"require-key", NULL, "refuse POST, PATCH and DELETE without an Idempotency-Key", 0},                          \
    {                                                                                                                  \
        "dev", NULL, "for development: short keys, 5xx released, readable logs; every response says so", 0             \
    }
/* clang-format on */

/* The flags of commands that verify webhooks: cmd/webhook/settings.h. */
/* clang-format off: it would spread the last row over three lines */
#define HX_CMD_WEBHOOK_FLAGS                                                                                           \
    {"scheme", "NAME", "who signed: standard, svix, stripe, github, shopify, slack, or hmac for all others", 0},       \
        {"secret-file", "FILE", "a file with the secret; may be repeated, while secrets rotate", 0},                   \
        {"secret-env", "NAME", "an environment variable with the secret; may be repeated", 0},                         \
        {"tolerance", "TIME", "how far the timestamp may be from now (5m)", 0},                                        \
        {"signature-header", "NAME", "hmac: the header with the signature", 0},                                        \
        {"timestamp-header", "NAME", "hmac: the header with the timestamp, in seconds", 0},                            \
        {"encoding", "ENCODING", "hmac: how the signature is written, hex or base64 (hex)", 0},                        \
        {"prefix", "TEXT", "hmac: what is before the signature, such as sha256=", 0},                                  \
    {                                                                                                                  \
        "signed", "TEXT", "hmac: what is signed, such as {timestamp}.{body} ({body})", 0                               \
    }
/* clang-format on */

typedef struct {
    const char *file; /* NULL: none */
    hx_config_overrides overrides;
    const char *listen[HX_LISTEN_MAX];
    bool too_many_listen;
} hx_cmd_config;

/* Takes one of these flags, for use in `take`; false if `flag` is not one of them. */
bool hx_cmd_config_take(hx_cmd_config *config, const char *flag, const char *value);
/* Loads the configuration. On failure returns NULL, with every mistake on standard error, one per line. */
hx_config *hx_cmd_config_load(const char *command, hx_cmd_config *config) HX_MUST_USE;

int hx_cmd_serve(int argc, char **argv);
int hx_cmd_audit(int argc, char **argv);
int hx_cmd_check(int argc, char **argv);
int hx_cmd_explain(int argc, char **argv);
int hx_cmd_demo(int argc, char **argv);
int hx_cmd_listen(int argc, char **argv);
int hx_cmd_mcp(int argc, char **argv);
int hx_cmd_consumers(int argc, char **argv);
int hx_cmd_endpoints(int argc, char **argv);
int hx_cmd_events(int argc, char **argv);
int hx_cmd_send(int argc, char **argv);
int hx_cmd_sql(int argc, char **argv);
int hx_cmd_store(int argc, char **argv);
int hx_cmd_keys(int argc, char **argv);
int hx_cmd_prove(int argc, char **argv);
int hx_cmd_reload(int argc, char **argv);
int hx_cmd_run(int argc, char **argv);
int hx_cmd_tokens(int argc, char **argv);
int hx_cmd_verify(int argc, char **argv);
int hx_cmd_version(int argc, char **argv);
int hx_cmd_help(int argc, char **argv);
int hx_cmd_reference(int argc, char **argv);

/* For the help: one command's page, and the beginning of the program's. */
void hx_cmd_page(FILE *out, const hx_cmd *cmd);
void hx_cmd_overview(FILE *out);
bool hx_cmd_colours(FILE *out); /* a terminal, and NO_COLOR is not set */
/* Text or JSON with bytes from the network: those that are not UTF-8, and characters that a terminal would obey or that
 * turn text around, are written as \u001b, which in JSON means the same. */
void hx_cmd_put_text(FILE *out, hx_slice text);
/* The same for well-formed JSON whose lines and spaces are kept: it stays the same JSON. */
void hx_cmd_put_json(FILE *out, hx_slice json);
/* Prints that the command is unknown, with the nearest name; returns HX_EXIT_USAGE. */
int hx_cmd_unknown(const char *name);

#endif
