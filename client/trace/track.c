// See track.h.

#include "client/trace/track.h"

#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/trace/file.h"

/* Ids of threads end before (PID_MAX_LIMIT of Linux is half of it). */
#define STREAMS UINT64_C(8388608)

static int process;
static __thread int thread; /* id of the calling one; 0: it has no track yet */

void track_begin(struct trace_line *line, const char *phase, uint64_t track, uint64_t ns, const char *name)
{
	trace_file_begin(line);
	line_add(line, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%llu,\"ts\":", phase, process,
		(unsigned long long)track);
	line_add_time(line, ns);
	line_add(line, ",\"name\":");
	line_add_string(line, name);
}

void track_end(struct trace_line *line)
{
	line_add(line, "}");
	trace_file_end(line);
}

static void put_name(const char *what, uint64_t track, const char *name)
{
	struct trace_line line;

	track_begin(&line, "M", track, 0, what);
	line_add(&line, ",\"args\":{\"name\":");
	line_add_string(&line, name);
	line_add(&line, "}");
	track_end(&line);
}

void track_start(void)
{
	process = (int)getpid();
	put_name("process_name", track_of_process(), program_invocation_short_name);
}

uint64_t track_of_process(void)
{
	return (uint64_t)process;
}

/* As the program has named it. */
static void name_thread(void)
{
	char name[32] = "";

	prctl(PR_GET_NAME, name);
	put_name("thread_name", (uint64_t)thread, name);
}

uint64_t track_of_thread(void)
{
	if (!thread) {
		thread = (int)syscall(SYS_gettid);
		name_thread();
	}
	return (uint64_t)thread;
}

uint64_t track_of_stream(uint64_t id)
{
	return STREAMS + id;
}

void track_name_stream(uint64_t id, bool is_default)
{
	char name[64];

	snprintf(name, sizeof(name), "stream %llu%s", (unsigned long long)id, is_default ? " (default)" : "");
	put_name("thread_name", track_of_stream(id), name);
}
