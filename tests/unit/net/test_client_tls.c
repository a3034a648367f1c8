/* SPDX-License-Identifier: Apache-2.0 */
/* https against a server with a certificate that was made for the test. The server is a thread. */
#include "client_fixture.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    fixture f; /* the listener */
    SSL_CTX *context;
    pthread_t thread;
    _Atomic int handshakes, requests; /* that were completed */
    _Atomic bool cuts;                /* it ends the connection instead of responding */
    char file[64];                    /* of its certificate */
} server;

static X509 *certificate_new(EVP_PKEY *key)
{
    X509 *certificate = X509_new();
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"right.example", -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:right.example,IP:127.0.0.1");
    X509_add_ext(certificate, names, -1);
    X509_EXTENSION_free(names);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    return certificate;
}

static void serve_connection(server *s, int fd)
{
    SSL *ssl = SSL_new(s->context);
    char bytes[4096];
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
        s->handshakes++;
        for (int len = 0, n; (n = SSL_read(ssl, bytes + len, (int)sizeof bytes - len)) > 0;) {
            len += n;
            if (!memmem(bytes, (size_t)len, "\r\n\r\nabc", 7)) continue;
            s->requests++;
            if (s->cuts) break;
            len = 0;
            if (SSL_write(ssl, OK, sizeof OK - 1) <= 0) break;
        }
    }
    SSL_free(ssl);
    close(fd);
}

static void *serve(void *context)
{
    server *s = context;
    for (int fd; (fd = accept(s->f.listener, NULL, NULL)) >= 0;) serve_connection(s, fd);
    return NULL;
}

static void server_start(server *s)
{
    *s = (server){0};
    set_up_listener(&s->f, "127.0.0.1");
    (void)fcntl(s->f.listener, F_SETFL, 0); /* blocking */
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = certificate_new(key);
    s->context = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(s->context, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(s->context, key), 1);
    (void)snprintf(s->file, sizeof s->file, "/tmp/hapax-test-%d.pem", (int)getpid());
    FILE *file = fopen(s->file, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, certificate), 1);
    assert_int_equal(fclose(file), 0);
    X509_free(certificate);
    EVP_PKEY_free(key);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_stop(server *s)
{
    shutdown(s->f.listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->f.listener);
    SSL_CTX_free(s->context);
    (void)unlink(s->file);
}

static void set_up_with(world *w, const server *s, bool trusts)
{
    hx_client_limits limits = usual_client_limits;
    limits.ca_file = trusts ? s->file : NULL;
    set_up_world(w, "127.0.0.1", &limits);
    w->port = (uint16_t)strtoul(strrchr(s->f.url, ':') + 1, NULL, 10);
}

static void run_tls(world *w, call *c, const char *host)
{
    prepare_call(w, c, "");
    (void)snprintf(c->url, sizeof c->url, "https://%s:%u/hook", host, w->port);
    start_call(w, c);
    wait_call(w, c);
}

static void a_certificate_that_nobody_vouches_for_is_refused(void **state)
{
    (void)state;
    server s;
    world w;
    call c;
    server_start(&s);
    set_up_with(&w, &s, false);
    run_tls(&w, &c, "127.0.0.1");
    assert_call(&c, TLS, 0);
    assert_int_equal(c.result.bytes_sent, 0);
    assert_non_null(strstr(c.reason, "certificate"));
    tear_down_world(&w);
    server_stop(&s);
    assert_int_equal(s.requests, 0);
}

static void a_certificate_is_for_its_names_only(void **state)
{
    (void)state;
    server s;
    world w;
    call c;
    server_start(&s);
    set_up_with(&w, &s, true);
    resolve_to("right.example", "127.0.0.1");
    resolve_to("wrong.example", "127.0.0.1");
    run_tls(&w, &c, "wrong.example");
    assert_call(&c, TLS, 0);
    assert_int_equal(c.result.bytes_sent, 0);
    assert_int_equal(s.requests, 0);
    run_tls(&w, &c, "right.example");
    assert_call(&c, NONE, 200);
    assert_true(c.result.bytes_sent > 0);
    assert_string_equal(c.body, "ok");
    run_tls(&w, &c, "RIGHT.example");
    assert_call(&c, NONE, 200);
    tear_down_world(&w);
    server_stop(&s);
    assert_int_equal(s.requests, 2);
    assert_true(s.handshakes <= 2); /* the third request used the second's connection */
}

/* A connection of which nothing is known any more: what was written to it may have been read. */
static void a_request_over_tls_that_was_cut_is_not_sent_again(void **state)
{
    (void)state;
    server s;
    world w;
    call c;
    server_start(&s);
    set_up_with(&w, &s, true);
    run_tls(&w, &c, "127.0.0.1");
    assert_call(&c, NONE, 200);
    s.cuts = true;
    run_tls(&w, &c, "127.0.0.1");
    assert_call(&c, RESET, 0);
    assert_true(c.result.bytes_sent > 0);
    tear_down_world(&w);
    server_stop(&s);
    assert_int_equal(s.requests, 2);
    assert_int_equal(s.handshakes, 1);
}

static void a_server_that_speaks_no_tls_gets_no_request(void **state)
{
    world *w = *state;
    call c;
    prepare_call(w, &c, "");
    (void)snprintf(c.url, sizeof c.url, "https://127.0.0.1:%u/", w->port);
    start_call(w, &c);
    int peer = accept_one(&w->f);
    send_text(&w->f, peer, "HTTP/1.1 400 Bad Request\r\n\r\n");
    wait_call(w, &c);
    assert_call(&c, TLS, 0);
    assert_int_equal(c.result.bytes_sent, 0);
    close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_certificate_that_nobody_vouches_for_is_refused),
        cmocka_unit_test(a_certificate_is_for_its_names_only),
        cmocka_unit_test(a_request_over_tls_that_was_cut_is_not_sent_again),
        with_world(a_server_that_speaks_no_tls_gets_no_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
