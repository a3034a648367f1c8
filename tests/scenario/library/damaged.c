/* SPDX-License-Identifier: Apache-2.0 */
/* What is found of a payment, with the log lines before it: damaged STORE KEY. */
#include <hapax.h>
#include <stdio.h>

static void print_line(void *context, int level, const char *line)
{
    (void)level;
    fprintf(context, "%s\n", line);
}

int main(int argc, char **argv)
{
    hapax_options options = {.size = sizeof options, .log = print_line, .log_context = stdout};
    hapax_request request = {.size = sizeof request, .name = "payments", .key = argc > 2 ? argv[2] : NULL};
    hapax *store;
    if (argc != 3 || hapax_open(argv[1], &options, &store) != HAPAX_OK) return 2;
    int code = hapax_find(store, &request, NULL);
    printf("%s: %s\n", hapax_code_name(code), hapax_message());
    hapax_close(&store);
    return 0;
}
