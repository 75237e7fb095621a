// See backend_bed.h.

#include "tests/gpu/backend_bed.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/keeper/keeper.h"

int failures;
struct backend_device device;
struct backend_module *module;
struct backend_function_info info;
struct keeper_end keeper;

void expect(bool good, const char *what, const char *file, int line)
{
	if (good)
		return;
	failures++;
	printf("FAIL %s:%d: %s\n", file, line, what);
}

void expect_code(CUresult code, CUresult wanted, const char *what, const char *file, int line)
{
	if (code == wanted)
		return;
	failures++;
	printf("FAIL %s:%d: %s is %d, not %d\n", file, line, what, (int)code, (int)wanted);
	if (backend_is_fatal(code)) {
		printf("the context is lost; nothing more can be checked\n");
		exit(1);
	}
}

double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void *at(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

/*
 * The keeper
 */

static void receive(void)
{
	int result = packet_receive(keeper.socket, &keeper.packet);

	if (!result)
		result = wire_decode(keeper.packet.bytes, keeper.packet.length, &keeper.answer);
	if (result) {
		printf("FAIL the keeper does not answer (%d)\n", result);
		exit(1);
	}
}

void ask(enum wire_type type, uint64_t bytes, uint64_t handle)
{
	static uint64_t id;
	struct wire_message message = {.type = type, .id = ++id, .chunk = {.bytes = bytes, .handle = handle}};

	check(!message_send(keeper.socket, &message, NULL, 0));
	receive();
}

void start_keeper(void)
{
	int ends[2];

	check(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
	keeper.pid = fork();
	if (!keeper.pid) {
		close(ends[0]);
		_exit(keeper_main(OPS, 0, ends[1]));
	}
	close(ends[1]);
	keeper.socket = ends[0];
	receive();
	check(keeper.answer.type == WIRE_READY);
}

int make_chunk(uint64_t bytes, uint64_t *ret_handle)
{
	ask(WIRE_CREATE_CHUNK, bytes, 0);
	ok((CUresult)keeper.answer.reply.code);
	check(keeper.answer.reply.values.count == 1);
	*ret_handle = keeper.answer.reply.values.count ? keeper.answer.reply.values.at[0] : 0;
	return packet_take_fd(&keeper.packet, 0);
}

void end_keeper(void)
{
	int status = 0;

	close(keeper.socket);
	waitpid(keeper.pid, &status, 0);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void kill_keeper(void)
{
	int status = 0;

	check(!kill(keeper.pid, SIGKILL));
	check(waitpid(keeper.pid, &status, 0) == keeper.pid && WIFSIGNALED(status));
	close(keeper.socket);
}

/*
 * Short forms
 */

struct backend_stream *stream_new(void)
{
	struct backend_stream *stream = NULL;

	ok(OPS->stream_create(0, 0, &stream));
	return stream;
}

void wait_stream(struct backend_stream *stream)
{
	CUresult code;
	double until = now_us() + 20e6;

	while ((code = OPS->stream_query(stream)) == CUDA_ERROR_NOT_READY && now_us() < until)
		;
	ok(code);
}

/* Waits for a mark; marks only grow. */
void wait_mark(uint64_t value)
{
	double until = now_us() + 20e6;

	while (word_acquire((word64 *)at(MARK)) < value && now_us() < until)
		word_pause();
	check(word_acquire((word64 *)at(MARK)) >= value);
}

CUresult launch_shaped(struct backend_stream *stream, const char *name, const void *arguments,
	const struct backend_launch *shape)
{
	struct backend_launch launch = *shape;
	CUresult code = OPS->function_find(module, name, true, &launch.function, &info);

	if (code)
		return code;
	launch.info = &info;
	launch.arguments = arguments;
	launch.argument_bytes = info.argument_bytes;
	return OPS->launch(stream, &launch);
}

CUresult launch(struct backend_stream *stream, const char *name, const void *arguments, uint32_t blocks,
	uint32_t threads)
{
	return launch_shaped(stream, name, arguments,
		&(struct backend_launch){.grid = {blocks, 1, 1}, .block = {threads, 1, 1}});
}

struct spin_params {
	uint64_t word;
	uint32_t value;
};

void close_gate(struct backend_stream *stream, uint32_t blocks, uint32_t threads)
{
	word_release((word32 *)at(GATE), 0);
	ok(launch(stream, "spin", &(struct spin_params){.word = GATE, .value = 1}, blocks, threads));
}

void open_gate(void)
{
	word_release((word32 *)at(GATE), 1);
}

/* Opens the gate after a while, so that a call which waits for the device shows itself and does not
 * hang. */
void *watchdog(void *patience_ms)
{
	usleep((useconds_t)(uintptr_t)patience_ms * 1000);
	open_gate();
	return NULL;
}

bool gate_is_open(void)
{
	return word_acquire((word32 *)at(GATE)) == 1;
}

CUresult copy_line(struct backend_stream *stream, uint64_t dst, uint64_t src, uint64_t bytes)
{
	return OPS->copy(stream, &(struct backend_copy){.dst = dst,
					 .src = src,
					 .width = bytes,
					 .height = 1,
					 .depth = 1,
					 .dst_is_host = dst >= HOST,
					 .src_is_host = src >= HOST});
}
