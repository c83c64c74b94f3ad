/* A node for the benchmark: one thread, epoll, no allocation per chunk.
 *
 * stream_node PORT CHUNKS INTERVAL_US PHASES HOLD_US FOLDER
 *
 * FOLDER/index has a line for each route, "METHOD PATH NAME"; what is sent is in files, as it goes
 * over the wire: NAME.whole; and for streams NAME.first, NAME.token, NAME.last.
 *
 *   POST with "stream":true   the first piece at once, then CHUNKS tokens, one every INTERVAL_US,
 *                             and the last piece; with "seed":1000 one token a second, as long.
 *                             When in the interval does not depend on the gateway: with 1 phase
 *                             all streams are written together, as by an engine that decodes in
 *                             steps, with more they take turns
 *   POST otherwise            the whole answer, HOLD_US after the request was read
 *   GET                       the whole answer at once
 *   GET  /stats               {"active", "posts", "gaps", "p50_us", "p99_us"}; forgets the gaps
 *
 * The digits after "@" in a token become the time at which it is written, in nanoseconds.
 * A gap is the time from just before an answer is written to the moment when the next POST has
 * been read whole: with one slot, what it takes to turn a freed slot into the next request.
 * A timer list is in order of time; nearly always the newest is the last.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define KEPT 65536 /* head and the start of the body: enough to see "stream" at the end of 30 KiB */
#define GAPS_MAX 20000
#define ROUTES_MAX 16
#define STAMP_DIGITS 19

typedef struct { char *bytes; int size; } text;

typedef struct {
  char target[128]; /* "METHOD PATH " */
  text whole, first, token, last;
  char *stamp; /* where in the token the time goes */
} route;

typedef struct connection {
  struct connection *before, *after; /* neighbours in a timer list */
  struct list *list;                 /* NULL: waits for nothing */
  long long due_ns, interval_ns;
  long long body_left; /* -1: head not complete; -2: chunked body */
  int descriptor, chunks_left, kept, rest_bytes;
  route *route;
  const char *rest; /* what the socket did not take yet */
  char owed[512];   /* the rest of a token, whose bytes change; longer pieces never do */
  char tail[5];     /* last bytes read, to see the end of a chunked body */
  char head[KEPT];
} connection;

typedef struct list { connection *first, *last; } list;

static list streams, held;
static int epoll_descriptor, chunks, active;
static long long interval_ns, hold_ns, answered_ns, posts, phases, opened;
static route routes[ROUTES_MAX];
static int route_count;
static double gaps_us[GAPS_MAX];
static int gaps;

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void push(list *to, connection *c, long long due_ns) {
  connection *before = to->last;
  while (before && before->due_ns > due_ns) before = before->before;
  c->due_ns = due_ns, c->list = to, c->before = before;
  c->after = before ? before->after : to->first;
  if (before) before->after = c; else to->first = c;
  if (c->after) c->after->before = c; else to->last = c;
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

static void watch(connection *c, unsigned interest) {
  struct epoll_event event = {.events = interest, .data.ptr = c};
  epoll_ctl(epoll_descriptor, EPOLL_CTL_MOD, c->descriptor, &event);
}

/* Write what fits, and keep the rest. 1: taken, 0: the piece before is not gone yet, -1: broken. */
static int put(connection *c, const char *bytes, int size) {
  if (c->rest_bytes) return 0;
  ssize_t sent = send(c->descriptor, bytes, size, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) return -1;
  if (sent < 0) sent = 0;
  if (sent == size) return 1;
  c->rest = bytes + sent, c->rest_bytes = size - sent;
  if (c->rest_bytes <= (int)sizeof c->owed) c->rest = memcpy(c->owed, c->rest, c->rest_bytes);
  watch(c, EPOLLIN | EPOLLOUT);
  return 1;
}

static void writable(connection *c) {
  ssize_t sent = send(c->descriptor, c->rest, c->rest_bytes, MSG_NOSIGNAL);
  if (sent > 0) c->rest += sent, c->rest_bytes -= sent;
  if (!c->rest_bytes) watch(c, EPOLLIN);
}

static void reply(connection *c, const char *bytes, int size) {
  put(c, bytes, size);
  expect_request(c);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void reply_stats(connection *c) {
  char body[256], whole[512];
  qsort(gaps_us, gaps, sizeof *gaps_us, by_size);
  int size = snprintf(
      body, sizeof body,
      "{\"active\": %d, \"posts\": %lld, \"gaps\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f}",
      active, posts, gaps, gaps ? gaps_us[gaps / 2] : -1, gaps ? gaps_us[gaps * 99 / 100] : -1);
  gaps = 0, answered_ns = 0;
  size = snprintf(whole, sizeof whole, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, body);
  reply(c, whole, size);
}

static route *find_route(const char *head) {
  for (int i = 0; i < route_count; i++)
    if (!strncmp(head, routes[i].target, strlen(routes[i].target))) return &routes[i];
  return NULL;
}

static void request_read(connection *c) {
  static const char missing[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}";
  long long now = now_ns();
  c->head[c->kept < KEPT ? c->kept : KEPT - 1] = 0;
  if (!strncmp(c->head, "GET /stats ", 11)) { reply_stats(c); return; }
  c->route = find_route(c->head);
  if (!c->route) { reply(c, missing, sizeof missing - 1); return; }
  if (strncmp(c->head, "POST ", 5)) { reply(c, c->route->whole.bytes, c->route->whole.size); return; }
  posts++;
  if (answered_ns && gaps < GAPS_MAX) gaps_us[gaps++] = (now - answered_ns) / 1e3;
  answered_ns = 0;
  int stream = strstr(c->head, "\"stream\":true") || strstr(c->head, "\"stream\": true");
  if (stream && c->route->token.size) {
    int slow = strstr(c->head, "\"seed\":1000") || strstr(c->head, "\"seed\": 1000");
    put(c, c->route->first.bytes, c->route->first.size);
    c->interval_ns = slow ? 1000000000LL : interval_ns;
    c->chunks_left = 1 + chunks * interval_ns / c->interval_ns, active++;
    long long phase = c->interval_ns * (opened++ % phases) / phases;
    push(&streams, c, now - now % c->interval_ns + c->interval_ns + phase);
  } else push(&held, c, now + hold_ns);
}

/* The next piece of a stream; as `put`. */
static int put_piece(connection *c) {
  char digits[STAMP_DIGITS + 1];
  if (c->chunks_left == 1) return put(c, c->route->last.bytes, c->route->last.size);
  snprintf(digits, sizeof digits, "%0*lld", STAMP_DIGITS, now_ns());
  memcpy(c->route->stamp, digits, STAMP_DIGITS);
  return put(c, c->route->token.bytes, c->route->token.size);
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
    reply(c, c->route->whole.bytes, c->route->whole.size);
  }
  for (connection *c; (c = streams.first) && c->due_ns <= now;) {
    int put_ok = put_piece(c);
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
    connection *c = malloc(sizeof *c);
    memset(c, 0, offsetof(connection, head));
    c->descriptor = descriptor;
    expect_request(c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_descriptor, EPOLL_CTL_ADD, descriptor, &event);
  }
}

static text contents(const char *folder, const char *name, const char *suffix) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.%s", folder, name, suffix);
  FILE *file = fopen(path, "r");
  text found = {0};
  if (!file) return found;
  fseek(file, 0, SEEK_END);
  found.size = ftell(file), found.bytes = calloc(1, found.size + 1);
  rewind(file);
  if ((int)fread(found.bytes, 1, found.size, file) != found.size) exit(2);
  fclose(file);
  return found;
}

static void read_routes(const char *folder) {
  char path[4096], method[8], where[100], name[64];
  snprintf(path, sizeof path, "%s/index", folder);
  FILE *file = fopen(path, "r");
  if (!file) { perror(path); exit(2); }
  while (route_count < ROUTES_MAX && fscanf(file, "%7s %99s %63s", method, where, name) == 3) {
    route *r = &routes[route_count++];
    snprintf(r->target, sizeof r->target, "%s %s ", method, where);
    r->whole = contents(folder, name, "whole"), r->first = contents(folder, name, "first");
    r->token = contents(folder, name, "token"), r->last = contents(folder, name, "last");
    if (!r->token.size) continue;
    r->stamp = strchr(r->token.bytes, '@') + 1;
  }
  fclose(file);
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
  chunks = atoi(words[2]), interval_ns = atoll(words[3]) * 1000, phases = atoll(words[4]);
  hold_ns = atoll(words[5]) * 1000;
  read_routes(words[6]);
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
    for (int i = 0; i < events; i++) {
      connection *c = ready[i].data.ptr;
      if (!c) { accept_all(listener); continue; }
      if (ready[i].events & EPOLLOUT) writable(c);
      if (ready[i].events & ~EPOLLOUT) readable(c);
    }
    run_timers(now_ns());
  }
}
