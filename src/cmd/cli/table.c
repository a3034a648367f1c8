/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/table.h"

#include "cmd/cli/cmd.h"

static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

void hx_table_print(const hx_table_row *rows, size_t count, size_t columns)
{
    bool colours = hx_cmd_colours(stdout);
    size_t widths[HX_TABLE_COLUMNS_MAX] = {0};
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < columns; c++)
            if (width_of(rows[i].cells[c]) > widths[c]) widths[c] = width_of(rows[i].cells[c]);
    for (size_t i = 0; i < count; i++) {
        for (size_t c = 0; c < columns; c++) {
            const char *text = rows[i].cells[c];
            const char *own = c == 1 ? rows[i].colour : c == 2 ? rows[i].next_colour : NULL;
            const char *colour = !colours ? "" : i == 0 ? "\033[1m" : own ? own : "";
            bool is_last = c + 1 == columns;
            (void)printf("%s%s%s%*s", colour, text, colour[0] ? "\033[0m" : "",
                         is_last ? 0 : (int)(widths[c] - width_of(text)) + 2, "");
        }
        (void)printf("\n");
    }
}

void hx_table_fact(const char *name, const char *value)
{
    const char *bold = hx_cmd_colours(stdout) ? "\033[1m" : "", *plain = bold[0] ? "\033[0m" : "";
    if (value[0]) (void)printf("%s%-12s%s %s\n", bold, name, plain, value);
}
