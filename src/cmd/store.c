/* SPDX-License-Identifier: Apache-2.0 */
/* hapax store: what can be done to a store that nobody has open. */
#include "cmd/cmd.h"

#include "base/check.h"
#include "store/store.h"

#include <string.h>

static void take(void *user, const char *flag, const char *value)
{
    (void)user, (void)flag, (void)value;
}

static void report(void *context, const char *sentence)
{
    (void)context;
    (void)printf("%s\n", sentence);
}

static int repair(const char *command, const char *place)
{
    hx_slice directory = hx_slice_of(place);
    char error[HX_STORE_ERROR_BYTES] = "";
    if (hx_slice_starts(directory, HX_LIT("journal:"))) directory = hx_slice_from(directory, strlen("journal:"));
    if (directory.len == 0) return hx_cmd_misused(command, "repair which directory?");
    if (!hx_journal_repair(directory, report, NULL, error)) {
        (void)fflush(stdout); /* what was reported comes before why it ended */
        (void)fprintf(stderr, "hapax store: %s\n", error);
        return HX_EXIT_STORE;
    }
    (void)printf("%.*s can be opened.\n", HX_FMT(directory));
    return HX_EXIT_OK;
}

int hx_cmd_store(int argc, char **argv)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 2, take, NULL, &operands);
    if (code >= 0) return code;
    if (operands == argc) return hx_cmd_misused(argv[0], "what shall be done: repair?");
    if (strcmp(argv[operands], "repair") != 0)
        return hx_cmd_misused(argv[0], "there is no \"%s\": repair?", argv[operands]);
    if (operands + 1 == argc) return hx_cmd_misused(argv[0], "repair which directory?");
    return repair(argv[0], argv[operands + 1]);
}
