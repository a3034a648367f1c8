/* SPDX-License-Identifier: Apache-2.0 */
/* Charges a card once, whatever happens to this program and however often it is run:
 *
 *     cc payment.c $(pkg-config --cflags --libs hapax) -o payment
 *     ./payment sqlite:/tmp/shop.db /run/bank.sock order-17 1999
 *
 * The bank is a socket that takes "charge KEY CENTS" and answers "ok ID" or "declined WHY". Exit status: 0 charged, now
 * or before; 1 declined; 75 unknown: the bank may have charged, and must be asked. */
#include <hapax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct {
    const char *bank, *key, *cents;
    char answer[200]; /* must outlive hapax_execute, which stores it */
} payment;

/* Runs at most once for each key. Before it is called, the claim is on the disk. */
static int charge(void *context, const hapax_claim *claim, hapax_result *result)
{
    payment *p = context;
    char line[200] = "", word[16] = "", id[100] = "";
    struct sockaddr_un bank = {.sun_family = AF_UNIX};
    (void)claim;
    strncpy(bank.sun_path, p->bank, sizeof bank.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&bank, sizeof bank) != 0) {
        if (fd >= 0) close(fd);
        return HAPAX_STATE_ABSENT; /* nothing was sent: the key can be used again */
    }
    int len = snprintf(line, sizeof line, "charge %s %s\n", p->key, p->cents);
    ssize_t sent = send(fd, line, (size_t)len, MSG_NOSIGNAL);
    ssize_t got = sent == len ? recv(fd, line, sizeof line - 1, MSG_WAITALL) : -1;
    close(fd);
    line[got > 0 ? got : 0] = '\0';
    if (sscanf(line, "%15s %99[^\n]", word, id) != 2) return HAPAX_STATE_UNKNOWN; /* it was sent, and nobody answered */
    int is_done = strcmp(word, "ok") == 0;
    snprintf(p->answer, sizeof p->answer, "{\"%s\": \"%s\"}", is_done ? "charge" : "error", id);
    result->body = p->answer;
    result->body_bytes = strlen(p->answer);
    return is_done ? HAPAX_STATE_COMPLETED : HAPAX_STATE_FAILED;
}

int main(int argc, char **argv)
{
    hapax *store;
    if (argc < 5) {
        fprintf(stderr, "usage: payment STORE BANK KEY CENTS [LEASE_MS]\n");
        return 2;
    }
    if (hapax_open(argv[1], NULL, &store) != HAPAX_OK) {
        fprintf(stderr, "payment: %s\n", hapax_message());
        return 3;
    }
    payment p = {.bank = argv[2], .key = argv[3], .cents = argv[4]};
    hapax_request request = {.size = sizeof request,
                             .name = "payments",
                             .key = p.key,
                             .payload = p.cents, /* the same key with another amount is a mistake, and is refused */
                             .payload_bytes = strlen(p.cents),
                             .lease = argc > 5 ? atol(argv[5]) : 0,
                             .wait = 10000};
    hapax_record outcome = {.size = sizeof outcome};
    int status = 75, code = hapax_execute(store, &request, charge, &p, &outcome);
    switch (code) {
    case HAPAX_OK:
    case HAPAX_DONE:
        printf("%s%.*s\n", outcome.is_retry ? "before: " : "", (int)outcome.body_bytes, (const char *)outcome.body);
        status = outcome.state == HAPAX_STATE_COMPLETED ? 0 : 1;
        break;
    default: fprintf(stderr, "payment: %s: %s\n", hapax_code_name(code), hapax_message());
    }
    hapax_record_clear(&outcome);
    hapax_close(&store);
    return status;
}
