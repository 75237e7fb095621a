// See raw.h.

#include "tests/system/raw.h"

#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/command.h"

#define ANSWER_MS 60000

/* Says nothing when all is well: thousands of packets are sent. */
#define EXPECT(condition)                                                                                    \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			ck_abort_msg("%s is not so", #condition);                                            \
	} while (0)

static struct packet packet;

int raw_connect(const struct service *service)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, service->socket, sizeof(address.sun_path) - 1);
	EXPECT(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

int raw_receive(int socket, struct packet *ret_packet)
{
	struct pollfd wait = {.fd = socket, .events = POLLIN};

	EXPECT(poll(&wait, 1, ANSWER_MS) == 1);
	return packet_receive(socket, ret_packet);
}

void raw_wait_hangup(int socket)
{
	int r;

	while ((r = raw_receive(socket, &packet)) == 0)
		packet_close_fds(&packet);
	EXPECT(r == PACKET_E_CLOSED);
	close(socket);
}

void raw_open(const struct service *service, struct raw_session *ret_session)
{
	uint64_t free_windows[7] = {
		0, ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), 0};
	struct wire_message hello = {.type = WIRE_HELLO,
		.hello = {.major = FRMPS_PROTOCOL_MAJOR,
			.program = "liar",
			.free_windows = {free_windows, 7},
			.window_base = UINT64_C(0x100000000000),
			.window_bytes = UINT64_C(0x4000000000)}};
	struct raw_session session = {.socket = raw_connect(service), .id = 1};
	static struct wire_message answer;

	EXPECT(message_send(session.socket, &hello, NULL, 0) == 0);
	EXPECT(raw_receive(session.socket, &packet) == 0);
	EXPECT(wire_decode(packet.bytes, packet.length, &answer) == 0);
	EXPECT(answer.type == WIRE_WELCOME && packet.fd_count == 3);
	session.client_fd = packet_take_fd(&packet, 0);
	session.server_fd = packet_take_fd(&packet, 1);
	session.doorbell = packet_take_fd(&packet, 2);
	session.window_base = answer.welcome.window_base;
	session.device_bytes = answer.welcome.device_bytes;
	session.host_bytes = answer.welcome.host_bytes;
	EXPECT(shm_view_map(&session.view, &answer.welcome.shape, session.client_fd, session.server_fd,
		       SHM_SIDE_CLIENT) == 0);
	*ret_session = session;
}

void raw_close(struct raw_session *session)
{
	shm_view_unmap(&session->view);
	if (session->socket >= 0)
		close(session->socket);
	close(session->doorbell);
	close(session->client_fd);
	close(session->server_fd);
}

int raw_ask(struct raw_session *session, struct wire_message *request, int *ret_fd)
{
	static struct wire_message answer;
	int r;

	request->id = ++session->id;
	r = message_send(session->socket, request, NULL, 0);
	if (!r)
		r = raw_receive(session->socket, &packet);
	if (r == PACKET_E_CLOSED)
		return -1;
	EXPECT(r == 0 && wire_decode(packet.bytes, packet.length, &answer) == 0);
	EXPECT(answer.type == WIRE_REPLY && answer.id == request->id);
	session->value = answer.reply.values.count ? answer.reply.values.at[0] : 0;
	if (ret_fd)
		*ret_fd = packet_take_fd(&packet, 0);
	packet_close_fds(&packet);
	return answer.reply.code;
}
