/* What the loops share: clocks, addresses, and one line of JSON for the benchmark. */
#ifndef PEERS_COMMON_H
#define PEERS_COMMON_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 512 /* taken from epoll at once, as the engine does */

static inline double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

/* CPU of this process so far, user and system. */
static inline double cpu(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void die(const char *what)
{
    perror(what);
    exit(1);
}

static inline struct sockaddr_in address(const char *ip, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, ip, &a.sin_addr) != 1)
        die(ip);
    return a;
}

static inline void watch(int poll, int op, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.fd = fd};
    if (epoll_ctl(poll, op, fd, &e))
        die("epoll_ctl");
}

static inline void report(long count, long bad, double cpu_used, double wall)
{
    printf("{\"count\": %ld, \"bad\": %ld, \"cpu\": %.6f, \"wall\": %.6f}\n", count, bad, cpu_used, wall);
}

#endif
