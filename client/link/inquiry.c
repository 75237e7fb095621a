// See inquiry.h. Runs under the start lock, as connect.c does, and opens and closes descriptors in
// the same way: within a change, so that a forked child finds them all.

#include "client/link/inquiry.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/link/connect_inside.h"
#include "client/link/mps.h"
#include "client/state/descriptor.h"

/* Sockets of devices, and 1; 0: none. Changed within a change. */
static int sockets[PLACE_DEVICES];

static void close_socket(unsigned number)
{
	if (sockets[number])
		close(sockets[number] - 1);
	sockets[number] = 0;
}

/* How often to look if a full queue of a listener has room again. */
#define QUEUE_MS 10

/* A device that is being asked. */
struct inquiry {
	enum { INQUIRY_DIALS, INQUIRY_WAITS, INQUIRY_OVER } state;
	int deaths; /* of its daemon, at the Hello */
};

/* Return: whether the inquiry goes on */
static bool begin_inquiry(unsigned number)
{
	struct connect_change change;
	int fd;

	connect_begin_change(&change);
	close_socket(number);
	fd = descriptor_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	sockets[number] = fd + 1;
	connect_end_change(&change);
	return fd >= 0;
}

void inquiry_abandon(void)
{
	for (unsigned i = 0; i < PLACE_DEVICES; ++i)
		close_socket(i);
}

static void end_inquiry(struct inquiry *inquiry, unsigned number)
{
	struct connect_change change;

	connect_begin_change(&change);
	close_socket(number);
	connect_end_change(&change);
	inquiry->state = INQUIRY_OVER;
}

/* The daemon has died; the next one does not know this process. */
static void begin_again(struct inquiry *inquiry, unsigned number)
{
	if (++inquiry->deaths < CONNECT_DEATHS && begin_inquiry(number))
		inquiry->state = INQUIRY_DIALS;
	else
		end_inquiry(inquiry, number);
}

/* While the listener's queue is full, the inquiry dials again later. */
static void dial_inquiry(struct inquiry *inquiry, unsigned number, const struct connect_wish *wish)
{
	static const uint64_t refused[WINDOW_WORDS];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[PLACE_BYTES];
	int r = place_find_device(number, path);

	if (r || strlen(path) >= sizeof(address.sun_path)) {
		end_inquiry(inquiry, number);
		return;
	}
	strcpy(address.sun_path, path);
	do {
		r = connect(sockets[number] - 1, (struct sockaddr *)&address, sizeof(address));
	} while (r < 0 && errno == EINTR);
	if (r == 0 && connect_greet(sockets[number] - 1, wish, refused) == CUDA_SUCCESS)
		inquiry->state = INQUIRY_WAITS;
	else if (r == 0)
		begin_again(inquiry, number);
	else if (errno != EAGAIN)
		end_inquiry(inquiry, number);
}

/* Return: CUDA_SUCCESS, or the error of @told */
static CUresult hear_inquiry(struct inquiry *inquiry, unsigned number, const struct connect_wish *wish,
	struct control_answer *answer, inquiry_told_fn *told)
{
	bool hung_up = false;
	CUresult r = connect_take(sockets[number] - 1, wish, answer, &hung_up);
	bool good = r == CUDA_SUCCESS && answer->message.type == WIRE_DESCRIPTION &&
		    connect_judge_description(&answer->message.description) == CUDA_SUCCESS;

	packet_close_fds(&answer->packet);
	if (hung_up)
		begin_again(inquiry, number);
	else
		end_inquiry(inquiry, number);
	return good ? told(&answer->message.description) : CUDA_SUCCESS;
}

/* Waits until an inquiry may go on. Return: false after the deadline, or if none goes on */
static bool wait_for_answers(const struct inquiry *all, int64_t deadline, struct pollfd *ret_polls)
{
	int64_t left = deadline - connect_now_ms();
	bool any = false;

	for (unsigned i = 0; i < PLACE_DEVICES; ++i) {
		ret_polls[i] = (struct pollfd){
			.fd = all[i].state == INQUIRY_WAITS ? sockets[i] - 1 : -1, .events = POLLIN};
		any |= all[i].state != INQUIRY_OVER;
		if (all[i].state == INQUIRY_DIALS && left > QUEUE_MS)
			left = QUEUE_MS;
	}
	if (!any || deadline <= connect_now_ms())
		return false;
	poll(ret_polls, PLACE_DEVICES, left > 0 ? (int)left : 0);
	return true;
}

static CUresult go_on(struct inquiry *inquiry, unsigned number, const struct connect_wish *wish, short events,
	struct control_answer *answer, inquiry_told_fn *told)
{
	if (inquiry->state == INQUIRY_DIALS)
		dial_inquiry(inquiry, number, wish);
	else if (inquiry->state == INQUIRY_WAITS && events)
		return hear_inquiry(inquiry, number, wish, answer, told);
	return CUDA_SUCCESS;
}

CUresult inquiry_ask(const bool asked[PLACE_DEVICES], struct control_answer *answer, inquiry_told_fn *told)
{
	struct connect_wish wish = {.want = CONNECT_DESCRIPTION, .sm_partition = mps_sm_partition()};
	int64_t deadline = connect_now_ms() + connect_timeout_ms();
	struct pollfd polls[PLACE_DEVICES] = {0};
	struct inquiry all[PLACE_DEVICES];
	CUresult r = mps_sm_percent(&wish.sm_percent);

	if (r == CUDA_SUCCESS)
		r = mps_priority(&wish.priority);
	for (unsigned i = 0; i < PLACE_DEVICES; ++i)
		all[i] = (struct inquiry){
			.state = asked[i] && begin_inquiry(i) ? INQUIRY_DIALS : INQUIRY_OVER};
	do
		for (unsigned i = 0; r == CUDA_SUCCESS && i < PLACE_DEVICES; ++i)
			r = go_on(&all[i], i, &wish, polls[i].revents, answer, told);
	while (r == CUDA_SUCCESS && wait_for_answers(all, deadline, polls));
	for (unsigned i = 0; i < PLACE_DEVICES; ++i)
		if (all[i].state != INQUIRY_OVER)
			end_inquiry(&all[i], i);
	return r;
}
