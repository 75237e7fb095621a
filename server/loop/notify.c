// One datagram to the service manager. See notify.h.

#include "server/loop/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_manager(const char *state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length;
	int fd, r = 0;

	if (!path || (path[0] != '/' && path[0] != '@'))
		return 0;
	length = strlen(path);
	if (length >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		r = -errno;
	close(fd);
	return r;
}
