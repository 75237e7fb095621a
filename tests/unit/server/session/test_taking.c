// Files of a program's own: which are taken, what is asked of them at their mapping, and that the
// daemon leaves them as they are. The processes that take them are real.

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "tests/unit/server/session/fixture.h"

#define PAGE  UINT64_C(4096)
#define WHOLE (8 * PAGE)

static struct packet answer;

/* Return: the program's end of what takes a file */
static int ask(uint64_t *ret_number)
{
	struct wire_message take = {.type = WIRE_TAKE_FILE};

	fake_request(fake, &client, &take, -1);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
	*ret_number = fake->message.reply.values.at[0];
	return packet_take_fd(&fake->packet, 0);
}

/* Until the process has answered, or is gone. */
static int await(int socket)
{
	int r;

	ck_assert_int_eq(fcntl(socket, F_SETFL, O_NONBLOCK), 0);
	FAKE_RUN_WHILE(fake, (r = packet_receive(socket, &answer)) == PACKET_E_AGAIN);
	return r;
}

/* @count: how often it is sent in the packet. Return: the code; @ret_number: for the mapping */
static int give(const int *fds, unsigned count, uint64_t *ret_number)
{
	struct wire_message message;
	int socket = ask(ret_number);

	ck_assert_int_eq(packet_send(socket, (const uint8_t *)"f", 1, fds, count), 0);
	ck_assert_int_eq(await(socket), 0);
	close(socket);
	ck_assert_int_eq(wire_decode(answer.bytes, answer.length, &message), 0);
	return message.reply.code;
}

static uint64_t give_well(int fd)
{
	uint64_t number;

	ck_assert_int_eq(give(&fd, 1, &number), 0);
	return number;
}

static int plain(void)
{
	return fake_memfd(WHOLE, 0);
}

static int by_name(void)
{
	int fd = shm_open("/frmps-test-taking", O_RDWR | O_CREAT, 0600);

	ck_assert_int_eq(ftruncate(fd, WHOLE), 0);
	shm_unlink("/frmps-test-taking");
	return fd;
}

static int sealed(void)
{
	return fake_memfd(WHOLE, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

static int again(int flags)
{
	char path[64];
	int fd = plain(), other;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, flags | O_CLOEXEC);
	close(fd);
	return other;
}

static int for_reading(void)
{
	return again(O_RDONLY);
}

static int for_writing(void)
{
	return again(O_WRONLY);
}

static int bare(void)
{
	return again(O_PATH);
}

static int of_a_disk(void)
{
	return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
}

static int a_folder(void)
{
	return open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int a_pipe(void)
{
	int pair[2];

	ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
	close(pair[1]);
	return pair[0];
}

static int a_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* -1 where there are none. */
static int huge(void)
{
	return memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
}

static const struct {
	int (*make)(void);
	int code;
} rows[] = {
	{plain, 0},
	{by_name, 0},
	{sealed, 0},
	{for_reading, CUDA_ERROR_NOT_SUPPORTED},
	{for_writing, CUDA_ERROR_NOT_SUPPORTED},
	{bare, CUDA_ERROR_NOT_SUPPORTED},
	{of_a_disk, CUDA_ERROR_NOT_SUPPORTED},
	{a_folder, CUDA_ERROR_NOT_SUPPORTED},
	{a_pipe, CUDA_ERROR_NOT_SUPPORTED},
	{a_socket, CUDA_ERROR_NOT_SUPPORTED},
	{huge, CUDA_ERROR_NOT_SUPPORTED},
};

TEST_LOOP(taking, files_in_memory_that_can_be_written_are_taken, 0, sizeof(rows) / sizeof(rows[0]))
{
	int fd = rows[_i].make();
	uint64_t number;

	if (fd < 0)
		return;
	join();
	ck_assert_int_eq(give(&fd, 1, &number), rows[_i].code);
	ck_assert_int_eq(
		fake_session(fake, 0)->uploads.at[number % UPLOADS_MAX].file != NULL, rows[_i].code == 0);
	close(fd);
	part();
}

/* None, or more than the process has room for. */
TEST_LOOP(taking, a_packet_has_one_descriptor, 0, 2)
{
	const int fds[] = {plain(), plain()};
	uint64_t number;

	join();
	ck_assert_int_eq(give(fds, _i ? 2 : 0, &number), _i ? 0 : CUDA_ERROR_NOT_SUPPORTED);
	close(fds[0]);
	close(fds[1]);
	part();
}

static void map(uint64_t file, uint64_t at, uint64_t bytes, uint64_t offset)
{
	struct wire_message wish = {.type = WIRE_MAP_HOST,
		.range = {.address = client.window_base + WINDOW_DEVICE_BYTES + at,
			.bytes = bytes,
			.file = file,
			.offset = offset}};

	fake_request(fake, &client, &wish, -1);
}

/* It goes to each executor, and to the daemon's next life, and comes back to nobody. */
TEST(taking, the_file_is_mapped_wherever_the_memory_is)
{
	struct wire_message unmap = {.type = WIRE_UNMAP_HOST};
	struct stat status, own;
	int fd = plain();

	join();
	ck_assert_int_eq(fstat(fd, &own), 0);
	ck_assert_int_eq(pwrite(fd, "kept", 4, 3 * PAGE), 4);
	map(give_well(fd), 0, 2 * PAGE, 3 * PAGE);
	for (int i = 0; i < 2; i++) {
		fake_expect(fake, i ? standby->socket : active->socket, WIRE_MAP_HOST);
		ck_assert_uint_eq(fake->message.range.offset, 3 * PAGE);
		ck_assert_uint_eq(fake->message.range.flags, WIRE_HOST_FILE);
		ck_assert_int_eq(fstat(fake->packet.fds[0], &status), 0);
		ck_assert_uint_eq(status.st_ino, own.st_ino);
		fake_reply(fake, i ? standby->socket : active->socket, fake->message.id, 0, NULL, 0);
		if (i)
			continue;
		ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
		ck_assert_uint_eq(fake->packet.fd_count, 0);
	}
	ck_assert_uint_eq(fake_session(fake, 0)->holdings.host_bytes, 2 * PAGE);
	unmap.range =
		(struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES, .bytes = 2 * PAGE};
	fake_request(fake, &client, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_HOST);
	fake_serve(fake, standby, WIRE_UNMAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake_session(fake, 0)->holdings.host_bytes, 0);
	/* The pages are the program's. */
	ck_assert_int_eq(pread(fd, answer.bytes, 4, 3 * PAGE), 4);
	ck_assert_mem_eq(answer.bytes, "kept", 4);
	close(fd);
	part();
}

/* Beyond the end, beside pages, with numbers that overflow, twice, of nobody. */
TEST(taking, a_mapping_lies_in_the_file)
{
	static const struct {
		uint64_t bytes, offset;
		int code;
	} wishes[] = {
		{PAGE, WHOLE, CUDA_ERROR_INVALID_VALUE},
		{2 * PAGE, WHOLE - PAGE, CUDA_ERROR_INVALID_VALUE},
		{WHOLE + PAGE, 0, CUDA_ERROR_INVALID_VALUE},
		{PAGE, -PAGE, CUDA_ERROR_INVALID_VALUE},
		{2 * PAGE, -PAGE, CUDA_ERROR_INVALID_VALUE},
		{PAGE, UINT64_C(1) << 63, CUDA_ERROR_INVALID_VALUE},
	};
	int fd = plain();
	uint64_t number;

	join();
	for (unsigned i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
		map(give_well(fd), 0, wishes[i].bytes, wishes[i].offset);
		ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, wishes[i].code);
	}
	number = give_well(fd);
	map(number + 1, 0, PAGE, 0);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, CUDA_ERROR_ILLEGAL_STATE);
	/* The last page is there in part. */
	ck_assert_int_eq(ftruncate(fd, 1), 0);
	map(number, 0, PAGE, 0);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_serve(fake, standby, WIRE_MAP_HOST);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
	map(number, PAGE, PAGE, 0);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, CUDA_ERROR_ILLEGAL_STATE);
	fake_expect_nothing(fake, active->socket);
	close(fd);
	part();
}

static const struct wire_range broken[] = {
	{.bytes = PAGE, .offset = PAGE},
	{.bytes = PAGE, .file = 1, .offset = 1},
	{.bytes = PAGE, .file = 1, .flags = WIRE_HOST_FILE},
	{.bytes = PAGE, .file = 1, .flags = WIRE_HOST_EVENTS},
	{.bytes = PAGE, .flags = WIRE_HOST_FILE},
};

TEST_LOOP(taking, a_mapping_that_no_library_asks_for_ends_the_session, 0, sizeof(broken) / sizeof(broken[0]))
{
	struct wire_message wish = {.type = WIRE_MAP_HOST, .range = broken[_i]};

	join();
	wish.range.address = client.window_base + WINDOW_DEVICE_BYTES;
	fake_request(fake, &client, &wish, -1);
	fake_expect_hangup(fake, client.socket);
	fake_leave(fake, &client);
	fake_free(fake);
}

/* A program that sends nothing, and more of them than a session may have. */
TEST(taking, what_is_awaited_ends_with_its_session)
{
	int sockets[UPLOADS_MAX + 2];
	uint64_t number;

	join();
	for (unsigned i = 0; i < 3; i++)
		sockets[i] = ask(&number);
	ck_assert_uint_eq(uploads_count(&fake_session(fake, 0)->uploads), 3);
	for (unsigned i = 0; i < 3; i++)
		close(sockets[i]);
	part();
}

int main(void)
{
	Suite *suite = suite_create("taking");
	TCase *tests = suite_case(suite, "taking");

	fake_prepare();
	suite_add(tests, "taking");
	return suite_run(suite);
}
