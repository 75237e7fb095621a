// See one_answer.h.

#include "tests/unit/server/one_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "tests/lib/suite.h"

unsigned one_answer_deaths;

static void answer(int listener, int32_t code, const char *json)
{
	struct wire_message message = {
		.type = WIRE_ADMIN_REPLY, .id = 1, .admin_reply = {.code = code, .json = json}};
	struct packet *packet = malloc(sizeof(*packet));
	int fd;

	alarm(20);
	while (one_answer_deaths--) {
		fd = accept(listener, NULL, NULL);
		packet_receive(fd, packet);
		close(fd);
	}
	fd = accept(listener, NULL, NULL);
	packet_receive(fd, packet);
	message_send(fd, &message, NULL, 0);
	packet_receive(fd, packet);
	_exit(0);
}

pid_t one_answer_start(const char *path, int32_t code, const char *json)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pid_t pid;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	pid = fork();
	if (pid == 0)
		answer(listener, code, json);
	close(listener);
	return pid;
}
