/* Echo requests by sendmmsg and recvmmsg on one raw socket, with the kernel's receive stamps: as many as one core does.
 * echo SECONDS BATCH IP */
#include "common.h"
#include <poll.h>

#define MOST 256
#define SIZE 64 /* of a request: ping's 8 bytes of header and 56 of payload */
#define IDENT 0x5253

static unsigned char out[MOST][SIZE], in[MOST][256], control[MOST][64];
static struct mmsghdr sent[MOST], got[MOST];
static struct iovec sent_part[MOST], got_part[MOST];

static uint16_t checksum(const unsigned char *bytes, int size)
{
    uint32_t sum = 0;
    for (int i = 0; i < size; i += 2)
        sum += (uint32_t)(bytes[i] | bytes[i + 1] << 8);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~(sum + (sum >> 16));
}

static void write_request(unsigned char *packet, uint64_t token)
{
    memset(packet, 0, SIZE);
    packet[0] = 8;
    packet[4] = IDENT >> 8;
    packet[5] = IDENT & 255;
    packet[6] = (unsigned char)(token >> 8);
    packet[7] = (unsigned char)token;
    memcpy(packet + 8, &token, sizeof token);
    uint16_t sum = checksum(packet, SIZE);
    memcpy(packet + 2, &sum, sizeof sum);
}

static int opened(void)
{
    int fd = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_ICMP), on = 1, room = 8 << 20;
    if (fd < 0)
        die("socket");
    uint32_t but_replies = ~1u;
    setsockopt(fd, 255 /* SOL_RAW */, 1 /* ICMP_FILTER */, &but_replies, sizeof but_replies);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    return fd;
}

static long taken(int fd, int batch)
{
    long ours = 0;
    for (int i = 0; i < batch; i++)
        got[i].msg_hdr.msg_controllen = sizeof control[i];
    int n = recvmmsg(fd, got, (unsigned)batch, 0, NULL);
    for (int i = 0; i < n; i++)
        ours += in[i][24] == IDENT >> 8 && in[i][25] == (IDENT & 255) && got[i].msg_hdr.msg_controllen;
    return ours;
}

int main(int count, char **word)
{
    if (count < 4)
        return 2;
    struct sockaddr_in to = address(word[3], 0);
    int fd = opened(), batch = atoi(word[2]) < MOST ? atoi(word[2]) : MOST;
    for (int i = 0; i < batch; i++) {
        sent_part[i] = (struct iovec){out[i], SIZE};
        got_part[i] = (struct iovec){in[i], sizeof in[i]};
        sent[i].msg_hdr = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &sent_part[i], .msg_iovlen = 1};
        got[i].msg_hdr = (struct msghdr){.msg_iov = &got_part[i], .msg_iovlen = 1, .msg_control = control[i]};
    }
    long begun = 0, done = 0;
    double spent = cpu(), from = now(), until = from + atof(word[1]), end = until + 1;
    while ((now() < until || done < begun) && now() < end) {
        if (begun - done < batch && now() < until) {
            for (int i = 0; i < batch; i++)
                write_request(out[i], (uint64_t)(begun + i));
            int n = sendmmsg(fd, sent, (unsigned)batch, 0);
            begun += n > 0 ? n : 0;
        }
        long more = taken(fd, batch);
        done += more;
        if (!more) {
            struct pollfd wait = {.fd = fd, .events = POLLIN};
            poll(&wait, 1, 10);
        }
    }
    report(done, begun - done, cpu() - spent, now() - from);
    return 0;
}
