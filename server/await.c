// See await.h.

#include "server/await.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

bool await_input(int fd, unsigned patience_ms)
{
	struct pollfd waiting = {.fd = fd, .events = POLLIN};
	int ready;

	do
		ready = poll(&waiting, 1, (int)patience_ms);
	while (ready < 0 && errno == EINTR);
	return ready > 0;
}

int await_answer(int fd, unsigned patience_ms, void *ret_answer, size_t size)
{
	size_t length = 0;
	ssize_t n;

	while (length < size) {
		if (!await_input(fd, patience_ms))
			return -ETIMEDOUT;
		n = read(fd, (char *)ret_answer + length, size - length);
		if (n <= 0)
			return -EPROTO;
		length += (size_t)n;
	}
	return 0;
}
