/* For debuginfod, which listens on all interfaces: binds to 127.0.0.1 in their place. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>

int bind(int fd, const struct sockaddr *address, socklen_t size) {
    int (*real)(int, const struct sockaddr *, socklen_t);
    struct sockaddr_storage own = {0};
    *(void **)&real = dlsym(RTLD_NEXT, "bind");
    if (size > sizeof own)
        return real(fd, address, size);
    memcpy(&own, address, size);
    if (own.ss_family == AF_INET6)
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &((struct sockaddr_in6 *)&own)->sin6_addr);
    else if (own.ss_family == AF_INET)
        ((struct sockaddr_in *)&own)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return real(fd, (struct sockaddr *)&own, size);
}
