// See neighbour.h.

#include "server/daemon/neighbour.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/place.h"
#include "server/config/config.h"
#include "server/session/daemon.h"

int neighbour_connect(const struct daemon *daemon, unsigned device)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[PLACE_BYTES];
	int fd, error;

	/* The service starts only with a name for each device's socket. */
	if (!place_of_device(daemon->config->socket, device, path) ||
		strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	error = errno;
	close(fd);
	return -error;
}
