/* One DNS question by a new connected socket each, with the kernel's receive stamp: as many as one core does.
 * query SECONDS WINDOW IP PORT */
#include "common.h"

static const unsigned char QUESTION[] = "\7example\4test\0\0\1\0\1";
static uint16_t ids[1 << 16]; /* by descriptor */

static void begin(int poll, const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || fd >= 1 << 16)
        die("socket");
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    if (connect(fd, (const struct sockaddr *)to, sizeof *to))
        die("connect");
    unsigned char packet[12 + sizeof QUESTION - 1] = {0, 0, 1, 0, 0, 1};
    ids[fd] = (uint16_t)random();
    packet[0] = (unsigned char)(ids[fd] >> 8);
    packet[1] = (unsigned char)ids[fd];
    memcpy(packet + 12, QUESTION, sizeof QUESTION - 1);
    if (send(fd, packet, sizeof packet, 0) < 0)
        die("send");
    watch(poll, EPOLL_CTL_ADD, fd, EPOLLIN);
}

/* Whether the answer is to our question, without an error, and stamped. */
static int is_good(int fd)
{
    unsigned char answer[4096], control[64];
    struct iovec part = {answer, sizeof answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t size = recvmsg(fd, &message, 0);
    return size > 12 && (answer[0] << 8 | answer[1]) == ids[fd] && !(answer[3] & 15) && message.msg_controllen;
}

int main(int count, char **word)
{
    if (count < 5)
        return 2;
    struct sockaddr_in to = address(word[3], atoi(word[4]));
    struct epoll_event events[EVENTS];
    int poll = epoll_create1(0), window = atoi(word[2]), live = 0;
    long done = 0, bad = 0;
    double spent = cpu(), from = now(), until = from + atof(word[1]);
    while (now() < until || live) {
        for (; live < window && now() < until; live++)
            begin(poll, &to);
        int n = epoll_wait(poll, events, EVENTS, 1000);
        if (!n)
            die("no answer within a second");
        for (int i = 0; i < n; i++, live--, done++) {
            bad += !is_good(events[i].data.fd);
            close(events[i].data.fd);
        }
    }
    report(done, bad, cpu() - spent, now() - from);
    return 0;
}
