// The bed of backend_check: counting failures, the keeper in a child process, short forms of what
// the checks do often.

#ifndef FRMPS_TESTS_GPU_BACKEND_BED_H
#define FRMPS_TESTS_GPU_BACKEND_BED_H

#include <stdbool.h>
#include <sys/types.h>

#include "protocol/socket.h"
#include "server/backend/backend.h"
#include "shm/order.h"

#define OPS (&backend_cuda)

#define WINDOW	     UINT64_C(0x100000000000)
#define WINDOW_BYTES (UINT64_C(192) << 30)
#define CHUNK_BYTES  (UINT64_C(64) << 20)
#define HOST	     (WINDOW + WINDOW_BYTES)
#define HOST_BYTES   (UINT64_C(8) << 20)

/* Places in the host part: words first, data behind. */
#define GATE	  (HOST + 0)
#define MARK	  (HOST + 64)
#define HOST_DATA (HOST + 65536)
#define SIDE	  65536u

#define check(condition) expect((condition), #condition, __FILE__, __LINE__)
#define ok(call)	 expect_code((call), CUDA_SUCCESS, #call, __FILE__, __LINE__)
#define refused(call, w) expect_code((call), (w), #call, __FILE__, __LINE__)

struct keeper_end {
	int socket;
	pid_t pid;
	struct packet packet;
	struct wire_message answer;
};

extern int failures;
extern struct backend_device device;
extern struct backend_module *module;
extern struct backend_function_info info; /* of the kernel found last */
extern struct keeper_end keeper;

/* Counts and reports what is not as wanted; a fatal code ends the program. */
void expect(bool good, const char *what, const char *file, int line);
void expect_code(CUresult code, CUresult wanted, const char *what, const char *file, int line);
/* Monotonic, microseconds. */
double now_us(void);
void *at(uint64_t address);
void ask(enum wire_type type, uint64_t bytes, uint64_t handle);
/* The keeper in a child process. */
void start_keeper(void);
int make_chunk(uint64_t bytes, uint64_t *ret_handle);
void end_keeper(void);
/* SIGKILL, and until it is reaped. */
void kill_keeper(void);
/* Work. launch() is one-dimensional; arguments are a struct of the kernel's parameters. */
struct backend_stream *stream_new(void);
void wait_stream(struct backend_stream *stream);
void wait_mark(uint64_t value);
CUresult launch_shaped(struct backend_stream *stream, const char *name, const void *arguments,
	const struct backend_launch *shape);
CUresult launch(struct backend_stream *stream, const char *name, const void *arguments, uint32_t blocks,
	uint32_t threads);
/* A kernel that spins until the gate is opened; the watchdog opens it after a while, so that a call
 * which waits for the device shows itself and does not hang. */
void close_gate(struct backend_stream *stream, uint32_t blocks, uint32_t threads);
void open_gate(void);
void *watchdog(void *patience_ms);
bool gate_is_open(void);
CUresult copy_line(struct backend_stream *stream, uint64_t dst, uint64_t src, uint64_t bytes);

/* backend_fence.c */
void check_fence(bool fault);

/* backend_trial.c */
void check_trial(bool off);
void check_trials(unsigned times, bool leave);

/* backend_sms.c */
void check_groups(void);

/* backend_caches.c: other code where code has run. */
void check_caches(void);

/* backend_loader.c: constants of many modules at a time; much local memory. */
void check_constants(void);
void check_local_memory(void);
void check_large_module(void);

/* backend_graph.c */
void check_changes(void);

/* backend_copy.c */
void check_copies(bool dst_is_host, bool src_is_host);
void check_sets(void);
void check_nothing_waits(void);

#endif
