/* SPDX-License-Identifier: Apache-2.0 */
#include "coverage.h"

#include <stdio.h>
#include <unistd.h>

sim_coverage *sim_coverage_here;

static const char *const row_names[SIM_ROWS] = {
#define X(name, text, test) #name,
#include "gateway/steps.def"
#undef X
    "(renewal)",
    "(sweep)",
};
static const char *const fault_names[SIM_FAULT_COUNT] = {
#define X(id, text) text,
    SIM_FAULTS(X)
#undef X
};
static const char *const change_names[SIM_CHANGE_COUNT] = {
#define X(id, text) text,
#include "changes.def"
#undef X
};
static const char *const fate_names[SIM_FATE_COUNT] = {
#define X(id, text) text,
    SIM_FATES(X)
#undef X
};

const char *sim_fault_name(sim_fault fault)
{
    return fault_names[fault];
}

static void count(const hx_request *r, sim_fault fault)
{
    if (r && (unsigned)r->step < HX_STEP_COUNT) sim_coverage_here->requests[r->step][fault]++;
}

void sim_cover_stream(const hx_stream *stream, sim_fault fault)
{
    count(stream->user, fault);
}

void sim_cover_exchange(const hx_exchange *exchange, sim_fault fault)
{
    count(exchange->user, fault);
}

void sim_cover_call(const hx_store_call *call, sim_fault fault)
{
    const hx_request *r = sim_request_around(call);
    if (r)
        count(r, fault);
    else
        sim_coverage_here->requests[call->verb == HX_STORE_SWEEP ? SIM_ROW_SWEEP : SIM_ROW_RENEW][fault]++;
}

void sim_cover_change(sim_change change, sim_fate fate)
{
    sim_coverage_here->changes[change][fate]++;
}

void sim_coverage_add(sim_coverage *sum, const sim_coverage *more)
{
    for (unsigned i = 0; i < SIM_ROWS; i++)
        for (unsigned k = 0; k < SIM_FAULT_COUNT; k++) sum->requests[i][k] += more->requests[i][k];
    for (unsigned i = 0; i < SIM_CHANGE_COUNT; i++)
        for (unsigned k = 0; k < SIM_FATE_COUNT; k++) sum->changes[i][k] += more->changes[i][k];
}

static void print_cell(uint64_t number, int width)
{
    const char *loud = isatty(STDOUT_FILENO) ? "\033[31m" : "", *plain = isatty(STDOUT_FILENO) ? "\033[0m" : "";
    if (number == 0)
        printf("%s%*s%s", loud, width, "-", plain);
    else
        printf("%*llu", width, (unsigned long long)number);
}

static void print_title(const char *const *names, unsigned count_of_names, int first_width, int width)
{
    printf("%-*s", first_width, "");
    for (unsigned i = 0; i < count_of_names; i++) printf("%*s", width, names[i]);
    printf("\n");
}

void sim_coverage_print(const sim_coverage *coverage)
{
    printf(
        "\nrequests in each step (and calls of the jobs) that met each fault; a step that never waits meets none:\n");
    print_title(fault_names, SIM_FAULT_COUNT, 10, 13);
    for (unsigned i = 0; i < SIM_ROWS; i++) {
        printf("%-10s", row_names[i]);
        for (unsigned k = 0; k < SIM_FAULT_COUNT; k++) print_cell(coverage->requests[i][k], 13);
        printf("\n");
    }
    printf("\nchanges in the store, and what their caller heard of them:\n");
    print_title(fate_names, SIM_FATE_COUNT, 30, 20);
    for (unsigned i = 0; i < SIM_CHANGE_COUNT; i++) {
        printf("%-30s", change_names[i]);
        for (unsigned k = 0; k < SIM_FATE_COUNT; k++) print_cell(coverage->changes[i][k], 20);
        printf("\n");
    }
}

static void json_row(const char *name, const uint64_t *cells, const char *const *names, unsigned count_of_names,
                     bool last)
{
    printf("    \"%s\": {", name);
    for (unsigned k = 0; k < count_of_names; k++) {
        printf("\"");
        for (const char *c = names[k]; *c; c++) printf(*c == '"' ? "\\\"" : "%c", *c);
        printf("\": %llu%s", (unsigned long long)cells[k], k + 1 < count_of_names ? ", " : "");
    }
    printf("}%s\n", last ? "" : ",");
}

void sim_coverage_json(const sim_coverage *coverage)
{
    printf("  \"steps\": {\n");
    for (unsigned i = 0; i < SIM_ROWS; i++)
        json_row(row_names[i], coverage->requests[i], fault_names, SIM_FAULT_COUNT, i + 1 == SIM_ROWS);
    printf("  },\n  \"changes\": {\n");
    for (unsigned i = 0; i < SIM_CHANGE_COUNT; i++)
        json_row(change_names[i], coverage->changes[i], fate_names, SIM_FATE_COUNT, i + 1 == SIM_CHANGE_COUNT);
    printf("  }\n");
}
