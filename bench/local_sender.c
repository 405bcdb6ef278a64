/* Sends datagrams to a local socket, and waits while it is full, as syslog(3) does: PATH COUNT SIZE. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv) {
    static const char header[] = "<13>Nov 26 12:00:00 shop[4711]: ";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc != 4 || strlen(argv[1]) >= sizeof address.sun_path)
        return 1;
    long count = atol(argv[2]);
    size_t size = strtoul(argv[3], NULL, 10);
    char *datagram = malloc(size + sizeof header);
    if (datagram == NULL)
        return 1;
    memset(datagram, 'm', size + sizeof header);
    memcpy(datagram, header, sizeof header - 1);
    strcpy(address.sun_path, argv[1]);
    int sock = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (sock < 0 || connect(sock, (struct sockaddr *)&address, sizeof address) < 0)
        return 2;
    while (count-- > 0)
        if (send(sock, datagram, size, 0) < 0)
            return 3;
    return 0;
}
