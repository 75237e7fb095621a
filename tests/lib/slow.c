// A connection that lingers. See slow.h.

#include "tests/lib/slow.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/suite.h"

int slow_new(int *ret_silent)
{
	static const char bytes[1 << 16];
	const struct linger linger = {.l_onoff = 1, .l_linger = 3600};
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		  listen(listener, 1) == 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	*ret_silent = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(*ret_silent, 0);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		continue;
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	close(listener);
	return fd;
}

void slow_close(int fd)
{
	const struct linger none = {0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(fd);
}
