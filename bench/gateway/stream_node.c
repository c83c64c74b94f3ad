/* A node for the benchmark: one thread, epoll, no allocation per chunk.
 *
 * stream_node PORT CHUNKS INTERVAL_US HOLD_US ANSWER_FILE MODELS_FILE
 *
 *   POST with "stream": true   CHUNKS server-sent events, one every INTERVAL_US, chunked encoding;
 *                              with "seed": 1000 as long a stream, of one event a second
 *   POST otherwise             ANSWER_FILE, HOLD_US after the request was read
 *   GET  /v1/models, /health   MODELS_FILE, {}; every other path is 404
 *   GET  /stats                {"active", "posts", "gaps", "p50_us", "p99_us"}; forgets the gaps
 *
 * A gap is the time from just before an answer is written to the moment when the next POST has
 * been read whole: with one slot, what it takes to turn a freed slot into the next request.
 * Each timer list is first in, first out: at any one time all in it wait equally long.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define KEPT 8192 /* head and the start of the body: enough to see "stream" in a small call */
#define GAPS_MAX 20000

typedef struct connection {
  struct connection *before, *after; /* neighbours in a timer list */
  struct list *list;                 /* NULL: waits for nothing */
  long long due_ns, interval_ns;
  long long body_left; /* -1: head not complete; -2: chunked body */
  int descriptor, chunks_left, kept, owed_bytes;
  char tail[5]; /* last bytes read, to see the end of a chunked body */
  char head[KEPT];
  char owed[512]; /* what the socket did not take of a chunk */
} connection;

typedef struct list { connection *first, *last; } list;

static list streams, held;
static int epoll_descriptor, chunks, active;
static long long interval_ns, hold_ns, answered_ns, posts;
static char *answer, *models;
static double gaps_us[GAPS_MAX];
static int gaps;

static const char EVENT[] =
    "71\r\ndata: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":"
    "[{\"index\":0,\"delta\":{\"content\":\" wordy\"}}]}\n\n\r\n";
static const char LAST[] =
    "84\r\ndata: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":"
    "[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n\r\n0\r\n\r\n";
static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void push(list *to, connection *c, long long due_ns) {
  c->due_ns = due_ns, c->list = to, c->after = NULL, c->before = to->last;
  if (to->last) to->last->after = c; else to->first = c;
  to->last = c;
}

static void unlink_timer(connection *c) {
  if (!c->list) return;
  if (c->before) c->before->after = c->after; else c->list->first = c->after;
  if (c->after) c->after->before = c->before; else c->list->last = c->before;
  c->list = NULL;
}

static void drop(connection *c) {
  if (c->list == &streams) active--;
  unlink_timer(c);
  close(c->descriptor);
  free(c);
}

static void expect_request(connection *c) { c->kept = 0, c->body_left = -1; }

/* Write what fits; keep the rest of a small piece. 0: nothing taken, -1: broken. */
static int put(connection *c, const char *bytes, int size) {
  if (c->owed_bytes) {
    ssize_t sent = send(c->descriptor, c->owed, c->owed_bytes, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN ? 0 : -1;
    memmove(c->owed, c->owed + sent, c->owed_bytes -= sent);
    if (c->owed_bytes) return 0;
  }
  ssize_t sent = send(c->descriptor, bytes, size, MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN ? 0 : -1;
  if (sent < size && size - sent <= (int)sizeof c->owed)
    memcpy(c->owed, bytes + sent, c->owed_bytes = size - sent);
  return 1;
}

static void reply(connection *c, const char *status, const char *body) {
  char text[65536 + 256];
  int size = snprintf(text, sizeof text,
                      "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                      status, strlen(body), body);
  put(c, text, size);
  expect_request(c);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void reply_stats(connection *c) {
  char text[256];
  qsort(gaps_us, gaps, sizeof *gaps_us, by_size);
  snprintf(text, sizeof text,
           "{\"active\": %d, \"posts\": %lld, \"gaps\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f}",
           active, posts, gaps, gaps ? gaps_us[gaps / 2] : -1, gaps ? gaps_us[gaps * 99 / 100] : -1);
  gaps = 0, answered_ns = 0;
  reply(c, "200 OK", text);
}

static void answer_get(connection *c) {
  if (!strncmp(c->head, "GET /v1/models ", 15)) reply(c, "200 OK", models);
  else if (!strncmp(c->head, "GET /health ", 12)) reply(c, "200 OK", "{}");
  else if (!strncmp(c->head, "GET /stats ", 11)) reply_stats(c);
  else reply(c, "404 Not Found", "{\"error\": {\"message\": \"no such path\"}}");
}

static void request_read(connection *c) {
  long long now = now_ns();
  c->head[c->kept < KEPT ? c->kept : KEPT - 1] = 0;
  if (strncmp(c->head, "POST ", 5)) { answer_get(c); return; }
  posts++;
  if (answered_ns && gaps < GAPS_MAX) gaps_us[gaps++] = (now - answered_ns) / 1e3;
  answered_ns = 0;
  if (strstr(c->head, "\"stream\":true") || strstr(c->head, "\"stream\": true")) {
    put(c, STREAM_HEAD, sizeof STREAM_HEAD - 1);
    int slow = strstr(c->head, "\"seed\":1000") || strstr(c->head, "\"seed\": 1000");
    c->interval_ns = slow ? 1000000000LL : interval_ns;
    c->chunks_left = 1 + chunks * interval_ns / c->interval_ns, active++;
    push(&streams, c, now + c->interval_ns);
  } else push(&held, c, now + hold_ns);
}

/* Returns 1 once the head is whole, with body_left set to what is still to come. */
static int read_head(connection *c) {
  c->head[c->kept] = 0;
  char *end = strstr(c->head, "\r\n\r\n");
  if (!end) return 0;
  char *length = strcasestr(c->head, "\r\ncontent-length:");
  char *chunked = strcasestr(c->head, "\r\ntransfer-encoding:");
  int body = c->kept - (int)(end + 4 - c->head);
  if (length && length < end) c->body_left = atoll(length + 17) - body;
  else if (chunked && chunked < end) c->body_left = -2;
  else c->body_left = 0;
  return 1;
}

static void readable(connection *c) {
  static char waste[1 << 18];
  for (;;) {
    int keep = c->kept < KEPT - 1;
    ssize_t got = keep ? recv(c->descriptor, c->head + c->kept, KEPT - 1 - c->kept, 0)
                       : recv(c->descriptor, waste, sizeof waste, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) { drop(c); return; }
    if (c->list) continue; /* busy: nothing is pipelined here */
    const char *bytes = keep ? c->head + c->kept : waste;
    if (keep) c->kept += got;
    for (ssize_t i = got > 5 ? got - 5 : 0; i < got; i++)
      memmove(c->tail, c->tail + 1, 4), c->tail[4] = bytes[i];
    if (c->body_left == -1) {
      if (!read_head(c)) continue;
    } else if (c->body_left > 0) c->body_left -= got;
    if (c->body_left == 0 || (c->body_left == -2 && !memcmp(c->tail, "0\r\n\r\n", 5)))
      request_read(c);
  }
}

static void run_timers(long long now) {
  for (connection *c; (c = held.first) && c->due_ns <= now;) {
    unlink_timer(c);
    answered_ns = now_ns();
    reply(c, "200 OK", answer);
  }
  for (connection *c; (c = streams.first) && c->due_ns <= now;) {
    int last = c->chunks_left == 1;
    int put_ok = last ? put(c, LAST, sizeof LAST - 1) : put(c, EVENT, sizeof EVENT - 1);
    if (put_ok < 0) { drop(c); continue; }
    unlink_timer(c);
    if (put_ok > 0 && --c->chunks_left == 0) active--, expect_request(c);
    else push(&streams, c, c->due_ns + c->interval_ns);
  }
}

static void accept_all(int listener) {
  int one = 1, descriptor;
  while ((descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection *c = calloc(1, sizeof *c);
    c->descriptor = descriptor;
    expect_request(c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_descriptor, EPOLL_CTL_ADD, descriptor, &event);
  }
}

static char *contents(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) { perror(path); exit(2); }
  char *text = calloc(1, 65536);
  if (fread(text, 1, 65535, file) == 0) exit(2);
  fclose(file);
  return text;
}

static int listen_on(int port) {
  int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
    perror("listen");
    exit(2);
  }
  return listener;
}

int main(int count, char **words) {
  if (count != 7) { fprintf(stderr, "see the head of stream_node.c\n"); return 2; }
  chunks = atoi(words[2]), interval_ns = atoll(words[3]) * 1000, hold_ns = atoll(words[4]) * 1000;
  answer = contents(words[5]), models = contents(words[6]);
  prctl(PR_SET_TIMERSLACK, 1);
  signal(SIGPIPE, SIG_IGN);
  int listener = listen_on(atoi(words[1]));
  epoll_descriptor = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, ready[256];
  epoll_ctl(epoll_descriptor, EPOLL_CTL_ADD, listener, &event);
  for (;;) {
    long long next = held.first ? held.first->due_ns : now_ns() + 1000000000LL;
    if (streams.first && streams.first->due_ns < next) next = streams.first->due_ns;
    long long wait = next - now_ns();
    if (wait < 0) wait = 0;
    struct timespec timeout = {wait / 1000000000LL, wait % 1000000000LL};
    int events = epoll_pwait2(epoll_descriptor, ready, 256, &timeout, NULL);
    for (int i = 0; i < events; i++)
      if (ready[i].data.ptr) readable(ready[i].data.ptr); else accept_all(listener);
    run_timers(now_ns());
  }
}
