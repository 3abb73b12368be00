/* A member of a closed process group of Corosync, under the load of `ordercast bench`.
 *
 *     cpg_load SIZE NODES INDEX RATE WARM_SECONDS SECONDS
 *
 * It behaves as the nodes of `ordercast bench` do: it says {"ready": true} when all members are there, reads the time
 * at which to begin from its standard input, and answers with its figures as one JSON line. Times are those of the
 * monotonic clock in nanoseconds. With a RATE (messages a second) a message carries the time at which it was due, and
 * lateness is measured at every receiver; without one it sends as fast as Corosync takes messages.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define READY_SECONDS 25
#define LATE_MAX (1 << 22)
#define BURST 64 /* messages between two looks at what has come */
#define REFUSED_WAIT 200000LL /* how long Corosync's "try again" is waited out, unless something comes before */

static uint64_t messages, bytes, read_bytes;
static size_t members;
static int measuring, timed;
static uint32_t *late;
static size_t late_count;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static void pause_for(int64_t nanoseconds) {
    struct timespec time = {nanoseconds / SECOND, nanoseconds % SECOND};
    nanosleep(&time, NULL);
}

static void fail(const char *what, int status) {
    fprintf(stderr, "%s: status %d\n", what, status);
    exit(1);
}

static void delivered(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *message,
                      size_t length) {
    (void)handle, (void)group, (void)node, (void)pid;
    messages++;
    bytes += length;
    if (timed) {
        if (measuring && late_count < LATE_MAX) {
            int64_t due;
            memcpy(&due, message, sizeof due);
            late[late_count++] = (uint32_t)((now() - due + 500) / 1000);
        }
    } else {
        read_bytes += *(unsigned char *)message;
    }
}

static void changed(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *all, size_t count,
                    const struct cpg_address *left, size_t left_count, const struct cpg_address *joined,
                    size_t joined_count) {
    (void)handle, (void)group, (void)all, (void)left, (void)left_count, (void)joined, (void)joined_count;
    members = count;
}

static void dispatch(cpg_handle_t handle) {
    cs_error_t status = cpg_dispatch(handle, CS_DISPATCH_ALL);
    if (status != CS_OK && status != CS_ERR_TRY_AGAIN)
        fail("cpg_dispatch", status);
}

/* Handles what comes, until then; returns early when something has come. */
static void wait_until(cpg_handle_t handle, int fd, int64_t until) {
    struct pollfd poll = {fd, POLLIN, 0};
    int64_t left = until - now();
    if (left < 0)
        left = 0;
    struct timespec time = {left / SECOND, left % SECOND};
    if (ppoll(&poll, 1, &time, NULL) > 0)
        dispatch(handle);
}

/* Whether Corosync has taken the message. */
static int multicast(cpg_handle_t handle, char *message, size_t size) {
    struct iovec part = {message, size};
    cs_error_t status = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1);
    if (status != CS_OK && status != CS_ERR_TRY_AGAIN)
        fail("cpg_mcast_joined", status);
    return status == CS_OK;
}

static void run_scheduled(cpg_handle_t handle, int fd, char *message, size_t size, double interval, int64_t first,
                          int64_t *number, int64_t until) {
    int64_t time;
    while ((time = now()) < until) {
        int64_t due = first + (int64_t)((double)*number * interval);
        if (due > time) {
            wait_until(handle, fd, due < until ? due : until);
            continue;
        }
        memcpy(message, &due, sizeof due);
        if (multicast(handle, message, size))
            ++*number;
        else
            wait_until(handle, fd, time + REFUSED_WAIT);
    }
}

static void run_saturated(cpg_handle_t handle, int fd, char *message, size_t size, int64_t until) {
    while (now() < until) {
        int taken = 0;
        while (taken < BURST && multicast(handle, message, size))
            taken++;
        wait_until(handle, fd, taken < BURST ? now() + REFUSED_WAIT : 0);
    }
}

static double processor_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static cpg_handle_t join(size_t nodes) {
    cpg_handle_t handle;
    cpg_callbacks_t callbacks = {.cpg_deliver_fn = delivered, .cpg_confchg_fn = changed};
    struct cpg_name group = {.length = 5, .value = "bench"};
    int64_t until = now() + READY_SECONDS * SECOND;
    cs_error_t status;
    while ((status = cpg_initialize(&handle, &callbacks)) != CS_OK) {
        if (now() > until)
            fail("cpg_initialize", status);
        pause_for(SECOND / 50);
    }
    while ((status = cpg_join(handle, &group)) != CS_OK) {
        if (now() > until)
            fail("cpg_join", status);
        pause_for(SECOND / 50);
    }
    while (members < nodes) {
        if (now() > until)
            fail("too few members", (int)members);
        dispatch(handle);
        pause_for(SECOND / 500);
    }
    return handle;
}

int main(int count, char **word) {
    if (count != 7) {
        fputs("usage: cpg_load SIZE NODES INDEX RATE WARM_SECONDS SECONDS\n", stderr);
        return 2;
    }
    size_t size = strtoul(word[1], NULL, 10), nodes = strtoul(word[2], NULL, 10);
    double index = atof(word[3]), rate = atof(word[4]), warm_s = atof(word[5]), seconds = atof(word[6]);
    timed = rate > 0;
    char *message = calloc(1, size < sizeof(int64_t) ? sizeof(int64_t) : size);
    late = malloc(LATE_MAX * sizeof *late);
    if (!message || !late)
        fail("no memory", 0);
    cpg_handle_t handle = join(nodes);
    int fd;
    cpg_fd_get(handle, &fd);

    puts("{\"ready\": true}");
    fflush(stdout);
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        return 1;
    int64_t begin = strtoll(line, NULL, 10), warm = begin + (int64_t)(warm_s * 1e9), end = warm + (int64_t)(seconds * 1e9);
    while (now() < begin)
        wait_until(handle, fd, begin);

    double interval = timed ? 1e9 / rate : 0;
    int64_t first = begin + (int64_t)(interval * index / (double)nodes), number = 0;
    uint64_t messages_before = 0, bytes_before = 0;
    double cpu_before = 0;
    int64_t started = 0;
    for (int phase = 0; phase < 2; phase++) {
        if (timed)
            run_scheduled(handle, fd, message, size, interval, first, &number, phase ? end : warm);
        else
            run_saturated(handle, fd, message, size, phase ? end : warm);
        if (!phase) {
            messages_before = messages, bytes_before = bytes, cpu_before = processor_seconds();
            started = now(), measuring = 1;
        }
    }
    measuring = 0;
    double span = (double)(now() - started) / 1e9;
    printf("{\"messages_per_s\": %.3f, \"bytes_per_s\": %.3f, \"cpu_s\": %.6f, \"late_us\": [",
           (double)(messages - messages_before) / span, (double)(bytes - bytes_before) / span,
           processor_seconds() - cpu_before);
    for (size_t at = 0; at < late_count; at++)
        printf(at ? ",%" PRIu32 : "%" PRIu32, late[at]);
    puts("]}");
    fflush(stdout);
    /* The others may still need what this one has: it goes when all have their figures. */
    for (struct pollfd poll[2] = {{0, POLLIN, 0}, {fd, POLLIN, 0}}; !(ppoll(poll, 2, NULL, NULL) > 0 && poll[0].revents);)
        dispatch(handle);
    return read_bytes == UINT64_MAX;
}
