// See receiver.h.

#include "tests/unit/server/daemon/receiver.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/transfer.h"
#include "tests/lib/folder.h"
#include "tests/unit/server/session/fixture.h"

struct transfers *transfers;
int listener, receiver;
int ends;
int32_t code;
char text[400];

void on_done(void *context, int32_t result, const char *reason)
{
	(void)context;
	ends++;
	code = result;
	snprintf(text, sizeof(text), "%s", reason);
}

void receiver_open(int flags)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[80];

	snprintf(path, sizeof(path), "%s/frmps.sock", folder_enter());
	snprintf(address.sun_path, sizeof(address.sun_path), "%s.1", path);
	transfers = transfers_new();
	snprintf(fake->config.socket, sizeof(fake->config.socket), "%s", path);
	fake->heritage.count = 2;
	fake->heritage.transfers = transfers;
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	receiver = -1;
	ends = code = 0;
}

void receiver_hang_up(void)
{
	if (receiver >= 0)
		close(receiver);
	receiver = -1;
}

void receiver_close(void)
{
	close(listener);
	munmap(transfers, sizeof(*transfers));
	folder_leave();
}
