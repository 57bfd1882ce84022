/* The other side of every probe: accepts, answers HTTP, and answers each DNS question with one address.
 * target IP PORTS; prints the ports it has taken as JSON, ends with the process that started it. */
#include "common.h"
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <signal.h>

#define BATCH 64
static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
static const unsigned char RECORD[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1};
static char listens[1 << 16]; /* by descriptor */

static int bound(int kind, const char *ip)
{
    int fd = socket(AF_INET, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = address(ip, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a))
        die("bind");
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_in a;
    socklen_t size = sizeof a;
    getsockname(fd, (struct sockaddr *)&a, &size);
    return ntohs(a.sin_port);
}

static void take(int poll, int listener)
{
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        listens[fd] = 0;
        watch(poll, EPOLL_CTL_ADD, fd, EPOLLIN);
    }
}

static void talk(int fd)
{
    char request[4096];
    ssize_t size = read(fd, request, sizeof request);
    if (size > 0) {
        if (write(fd, ANSWER, sizeof ANSWER - 1) > 0)
            shutdown(fd, SHUT_WR);
    } else if (size == 0 || errno != EAGAIN)
        close(fd);
}

/* The size of the answer written over the question. */
static size_t answered(unsigned char *packet, size_t size)
{
    size_t end = 12;
    while (end < size && packet[end])
        end += 1u + packet[end];
    end += 5;
    if (size < 17 || end > size)
        return 0;
    const unsigned char head[] = {0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0};
    memcpy(packet + 2, head, sizeof head);
    memcpy(packet + end, RECORD, sizeof RECORD);
    return end + sizeof RECORD;
}

static void resolve(int fd)
{
    static unsigned char bytes[BATCH][1500];
    struct sockaddr_in peers[BATCH];
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){bytes[i], sizeof bytes[i] - sizeof RECORD};
        messages[i].msg_hdr = (struct msghdr){.msg_name = &peers[i], .msg_namelen = sizeof peers[i], .msg_iov = &parts[i], .msg_iovlen = 1};
    }
    int n = recvmmsg(fd, messages, BATCH, 0, NULL);
    for (int i = 0; i < n; i++)
        parts[i].iov_len = answered(bytes[i], messages[i].msg_len);
    if (n > 0)
        sendmmsg(fd, messages, (unsigned)n, 0);
}

int main(int count, char **word)
{
    if (count < 3)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int poll = epoll_create1(0), udp = bound(SOCK_DGRAM, word[1]), room = 8 << 20;
    setsockopt(udp, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    watch(poll, EPOLL_CTL_ADD, udp, EPOLLIN);
    printf("{\"tcp\": [");
    for (int i = 0; i < atoi(word[2]); i++) {
        int fd = bound(SOCK_STREAM, word[1]);
        if (listen(fd, 4096))
            die("listen");
        listens[fd] = 1;
        watch(poll, EPOLL_CTL_ADD, fd, EPOLLIN);
        printf("%s%d", i ? ", " : "", port_of(fd));
    }
    printf("], \"udp\": %d}\n", port_of(udp));
    fflush(stdout);
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == udp)
                resolve(fd);
            else if (listens[fd])
                take(poll, fd);
            else
                talk(fd);
        }
    }
}
