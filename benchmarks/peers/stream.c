/* connect, TCP_INFO, (request, answer,) close: as many as one core does.
 * stream tcp|http SECONDS WINDOW IP PORT... */
#include "common.h"
#include <netinet/tcp.h>

static const char REQUEST[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
static char asked[1 << 16]; /* by descriptor: the request is on its way */

static int begin(int poll, const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || fd >= (int)sizeof asked)
        die("socket");
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) && errno != EINPROGRESS) {
        close(fd);
        return 0;
    }
    asked[fd] = 0;
    watch(poll, EPOLL_CTL_ADD, fd, EPOLLOUT);
    return 1;
}

/* Whether it is over; `bad` counts it where it failed. */
static int go_on(int poll, int fd, int http, long *bad)
{
    char answer[4096];
    if (asked[fd]) {
        ssize_t size = read(fd, answer, sizeof answer);
        *bad += size < 12 || memcmp(answer + 9, "200", 3) != 0;
        return 1;
    }
    struct tcp_info info;
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) || !info.tcpi_rtt) {
        *bad += 1;
        return 1;
    }
    if (!http)
        return 1;
    if (write(fd, REQUEST, sizeof REQUEST - 1) < 0) {
        *bad += 1;
        return 1;
    }
    asked[fd] = 1;
    watch(poll, EPOLL_CTL_MOD, fd, EPOLLIN);
    return 0;
}

int main(int count, char **word)
{
    if (count < 6)
        return 2;
    int http = !strcmp(word[1], "http"), window = atoi(word[3]), ports = count - 5, poll = epoll_create1(0);
    struct sockaddr_in to[64];
    for (int i = 0; i < ports && i < 64; i++)
        to[i] = address(word[4], atoi(word[5 + i]));
    struct epoll_event events[EVENTS];
    long done = 0, begun = 0, bad = 0;
    int live = 0;
    double spent = cpu(), from = now(), until = from + atof(word[2]);
    while (now() < until || live) {
        while (live < window && now() < until) {
            int ok = begin(poll, &to[begun++ % ports]);
            live += ok;
            bad += !ok;
            done += !ok;
        }
        int n = epoll_wait(poll, events, EVENTS, 1000);
        for (int i = 0; i < n; i++)
            if (go_on(poll, events[i].data.fd, http, &bad)) {
                close(events[i].data.fd);
                live--;
                done++;
            }
    }
    report(done, bad, cpu() - spent, now() - from);
    return 0;
}
