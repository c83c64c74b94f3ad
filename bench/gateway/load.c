/* The load of the benchmark: one thread, epoll, a request read from a file and sent as it is.
 *
 * load rate    PORT REQUEST PER_SECOND SECONDS CONNECTIONS   open loop: answers timed from the
 *                                                            moment the request was due, so a late
 *                                                            server (or a late client) shows
 * load loop    PORT REQUEST CONNECTIONS SECONDS              closed loop: the next after an answer
 * load first   PORT REQUEST CONNECTIONS SECONDS              the same with streams: the time from a
 *                                                            request to its first token
 * load streams PORT REQUEST STREAMS WARM_S SECONDS           counts events and how late tokens are;
 *                                                            "begin" and "end" lines
 * load hold    PORT REQUEST CONNECTIONS                      sends, reads, until standard input ends
 *
 * Results are JSON on standard output. Errors are answers other than 2xx, and broken connections.
 * A request is at most 64 KiB: a socket takes it at once. A token says after "@" when the node
 * wrote it; one that lies across two reads is not timed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
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

#define ANSWER_MAX 16384
#define TIMES_MAX (1 << 22)
#define STAMP_DIGITS 19
#define DRAIN_NS 2000000000LL /* how long the last answers may take after the load has ended */

typedef struct connection {
  int descriptor, size, busy;
  char last; /* last byte of a stream seen */
  int seen;  /* a stream has begun */
  long long due_ns;
  char *answer;
} connection;

static int epoll_descriptor, port, request_size;
static char *request;
static long long done, errors, events, reads, seen, closed;
static double *times_us;
static int times; /* those of `first` and `streams`: at most TIMES_MAX */

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void dial(connection *c) {
  int one = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  c->descriptor = socket(AF_INET, SOCK_STREAM, 0);
  c->size = c->busy = 0;
  if (c->descriptor < 0 || connect(c->descriptor, (struct sockaddr *)&address, sizeof address)) {
    perror("connect");
    exit(3);
  }
  setsockopt(c->descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(c->descriptor, F_SETFL, O_NONBLOCK);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(epoll_descriptor, EPOLL_CTL_ADD, c->descriptor, &event);
}

static void redial(connection *c) {
  close(c->descriptor);
  dial(c);
}

static void ask(connection *c, long long due_ns) {
  c->busy = 1, c->size = 0, c->due_ns = due_ns;
  if (send(c->descriptor, request, request_size, MSG_NOSIGNAL) == request_size) return;
  redial(c); /* the server had closed an idle connection: not an error of its */
  c->busy = 1, c->due_ns = due_ns;
  if (send(c->descriptor, request, request_size, MSG_NOSIGNAL) != request_size) errors++;
}

/* 1: a whole answer, 0: not yet, -1: the connection is of no more use. */
static int read_answer(connection *c) {
  for (;;) {
    ssize_t got = recv(c->descriptor, c->answer + c->size, ANSWER_MAX - 1 - c->size, 0);
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return -1;
    c->size += got;
    if (c->size == ANSWER_MAX - 1) return -1;
  }
  c->answer[c->size] = 0;
  char *end = strstr(c->answer, "\r\n\r\n");
  if (!end) return 0;
  char *length = strcasestr(c->answer, "\r\ncontent-length:");
  if (length && length < end) return c->size >= end + 4 - c->answer + atol(length + 17);
  return !memcmp(c->answer + c->size - 5, "0\r\n\r\n", 5);
}

static void count_answer(connection *c) {
  if (strncmp(c->answer, "HTTP/1.1 2", 10)) errors++; else done++;
  char *close_it = strcasestr(c->answer, "\r\nconnection: close");
  char *end = strstr(c->answer, "\r\n\r\n");
  if (close_it && close_it < end + 2) redial(c);
  c->busy = 0;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int wait_until(long long due_ns, struct epoll_event *ready) {
  long long wait = due_ns - now_ns();
  if (wait < 0) wait = 0;
  struct timespec timeout = {wait / 1000000000LL, wait % 1000000000LL};
  return epoll_pwait2(epoll_descriptor, ready, 256, &timeout, NULL);
}

static connection *dial_many(int count, int answers) {
  connection *all = calloc(count, sizeof *all);
  for (int i = 0; i < count; i++) {
    all[i].answer = answers ? malloc(ANSWER_MAX) : NULL;
    dial(&all[i]);
  }
  return all;
}

static double at(double share) {
  return times ? times_us[(int)(times * share)] : -1;
}

static void note_us(double us) {
  if (times < TIMES_MAX) times_us[times++] = us;
}

static void print_rate(double *times_us, long long count, long long sent, double late_us) {
  double sum = 0;
  for (long long i = 0; i < count; i++) sum += times_us[i];
  qsort(times_us, count, sizeof *times_us, by_size);
  if (!count) { printf("{\"sent\": %lld, \"done\": 0, \"errors\": %lld}\n", sent, errors); return; }
  printf("{\"sent\": %lld, \"done\": %lld, \"errors\": %lld, \"late_max_us\": %.1f, \"mean_us\": %.1f, "
         "\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
         sent, done, errors, late_us, sum / count, times_us[count / 2], times_us[count * 9 / 10],
         times_us[count * 99 / 100], times_us[count - 1]);
}

static void run_rate(double per_second, double seconds, int count) {
  connection *all = dial_many(count, 1);
  long long total = per_second * seconds, sent = 0, answered = 0, start = now_ns() + 50000000LL;
  double *times_us = calloc(total + 1, sizeof *times_us), late_us = 0;
  long long step = 1e9 / per_second, give_up = start + total * step + DRAIN_NS;
  struct epoll_event ready[256];
  while (answered + errors < total && now_ns() < give_up) {
    connection *idle = NULL;
    for (int i = 0; i < count && !idle; i++) if (!all[i].busy) idle = &all[i];
    long long due = start + sent * step;
    if (sent < total && idle && now_ns() >= due) {
      double late = (now_ns() - due) / 1e3;
      if (late > late_us) late_us = late;
      sent++;
      ask(idle, due);
      continue;
    }
    int events_now = wait_until(sent < total && idle ? due : give_up, ready);
    for (int i = 0; i < events_now; i++) {
      connection *c = ready[i].data.ptr;
      int state = read_answer(c);
      if (state == 1 && c->busy) {
        times_us[answered++] = (now_ns() - c->due_ns) / 1e3;
        count_answer(c);
      } else if (state) errors += c->busy, redial(c);
    }
  }
  print_rate(times_us, answered, sent, late_us);
}

static void run_loop(int count, double seconds) {
  connection *all = dial_many(count, 1);
  long long end = now_ns() + (long long)(seconds * 1e9);
  struct epoll_event ready[256];
  for (int i = 0; i < count; i++) ask(&all[i], now_ns());
  while (now_ns() < end) {
    int events_now = wait_until(end, ready);
    for (int i = 0; i < events_now; i++) {
      connection *c = ready[i].data.ptr;
      int state = read_answer(c);
      if (!state) continue;
      if (state == 1) count_answer(c); else errors++, redial(c);
      ask(c, now_ns());
    }
  }
  printf("{\"done\": %lld, \"errors\": %lld}\n", done, errors);
}

static void run_first(int count, double seconds) {
  connection *all = dial_many(count, 1);
  long long end = now_ns() + (long long)(seconds * 1e9);
  struct epoll_event ready[256];
  for (int i = 0; i < count; i++) ask(&all[i], now_ns());
  while (now_ns() < end) {
    int events_now = wait_until(end, ready);
    for (int i = 0; i < events_now; i++) {
      connection *c = ready[i].data.ptr;
      int state = read_answer(c);
      if (state >= 0 && !c->seen && c->size && strchr(c->answer, '@'))
        c->seen = 1, note_us((now_ns() - c->due_ns) / 1e3);
      if (!state) continue;
      if (state == 1) count_answer(c); else errors++, redial(c);
      c->seen = 0;
      ask(c, now_ns());
    }
  }
  qsort(times_us, times, sizeof *times_us, by_size);
  printf("{\"done\": %lld, \"errors\": %lld, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", done, errors,
         at(0.5), at(0.99));
}

static void note_delays(const char *from, const char *end) {
  long long now = now_ns();
  while ((from = memchr(from, '@', end - from)) && end - ++from >= STAMP_DIGITS)
    note_us((now - strtoll(from, NULL, 10)) / 1e3);
}

/* An event ends with an empty line; the "\r\n" of the chunked encoding never makes one. Where
 * events are lines of JSON, they are not counted but timed. */
static void read_stream(connection *c) {
  static char bytes[1 << 16];
  for (;;) {
    ssize_t got = recv(c->descriptor, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) { closed++; close(c->descriptor); return; }
    reads++;
    if (!c->seen) {
      c->seen = 1, seen++;
      if (got > 9 && strncmp(bytes, "HTTP/1.1 2", 10)) errors++;
    }
    char *from = bytes, *end = bytes + got, *mark;
    note_delays(bytes, end);
    if (c->last == '\n' && bytes[0] == '\n') events++;
    while ((mark = memchr(from, '\n', end - from)) && mark + 1 < end) {
      if (mark[1] == '\n') events++;
      from = mark + 1;
    }
    c->last = end[-1];
    if (got < (ssize_t)sizeof bytes) return;
  }
}

static void read_streams(long long until_ns) {
  struct epoll_event ready[256];
  while (now_ns() < until_ns) {
    int events_now = wait_until(until_ns, ready);
    for (int i = 0; i < events_now; i++) read_stream(ready[i].data.ptr);
  }
}

static void run_streams(int count, double warm_s, double seconds) {
  connection *all = dial_many(count, 0);
  for (int i = 0; i < count; i++) {
    ask(&all[i], 0);
    if (i % 20 == 19) read_streams(now_ns() + 4000000LL); /* spread the beats of the streams */
  }
  read_streams(now_ns() + (long long)(warm_s * 1e9));
  printf("begin\n"), fflush(stdout);
  long long before = events, reads_before = reads, from = now_ns();
  times = 0;
  read_streams(from + (long long)(seconds * 1e9));
  qsort(times_us, times, sizeof *times_us, by_size);
  printf("end {\"events\": %lld, \"reads\": %lld, \"seconds\": %.4f, \"open\": %lld, \"closed\": %lld, "
         "\"errors\": %lld, \"tokens\": %d, \"delay_p50_us\": %.1f, \"delay_p99_us\": %.1f}\n",
         events - before, reads - reads_before, (now_ns() - from) / 1e9, seen, closed, errors, times,
         at(0.5), at(0.99));
  fflush(stdout);
}

static void run_hold(int count) {
  connection *all = dial_many(count, 0);
  for (int i = 0; i < count; i++) {
    ask(&all[i], 0);
    if (i % 50 == 49) read_streams(now_ns() + 2000000LL); /* no server is asked to take them at once */
  }
  printf("open\n"), fflush(stdout);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  while (!poll(&input, 1, 0)) read_streams(now_ns() + 20000000LL);
  printf("end {\"answered\": %lld, \"closed\": %lld, \"errors\": %lld}\n", seen, closed, errors);
  fflush(stdout);
}

static void read_request(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) { perror(path); exit(2); }
  request = malloc(1 << 16);
  request_size = fread(request, 1, 1 << 16, file);
  fclose(file);
}

int main(int count, char **words) {
  if (count < 5) { fprintf(stderr, "see the head of load.c\n"); return 2; }
  port = atoi(words[2]);
  read_request(words[3]);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_TIMERSLACK, 1);
  epoll_descriptor = epoll_create1(0);
  times_us = malloc(TIMES_MAX * sizeof *times_us);
  if (!strcmp(words[1], "rate") && count == 7) {
    /* Measures, and uses next to nothing: it must not wait behind the node on its own core. */
    struct sched_param first = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &first)) fprintf(stderr, "no real-time scheduling\n");
    run_rate(atof(words[4]), atof(words[5]), atoi(words[6]));
  } else if (!strcmp(words[1], "loop") && count == 6) run_loop(atoi(words[4]), atof(words[5]));
  else if (!strcmp(words[1], "first") && count == 6) run_first(atoi(words[4]), atof(words[5]));
  else if (!strcmp(words[1], "streams") && count == 7)
    run_streams(atoi(words[4]), atof(words[5]), atof(words[6]));
  else if (!strcmp(words[1], "hold") && count == 5) run_hold(atoi(words[4]));
  else return 2;
  return 0;
}
