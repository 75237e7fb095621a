// See kernel_log.h. Each read() of /dev/kmsg returns a record: "level,sequence,time,flags;text".
// The matching lines:
//
//   NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 6, TPC 5, SM 0): …
//   NVRM: Xid (PCI:0000:00:06): 31, pid=468, name=exe, channel 0x0000000c, … MMU Fault: … faulted @ …
//   NVRM: Xid (PCI:0000:00:06): 43, pid=431, name=exe, channel 0x0000000a
//
// Numbers that end a context are those that the driver's documentation of Xid errors lists as
// errors of the application: 13 (exception of a multiprocessor), 31 (MMU fault), 43 (the channel
// was stopped for one of the former, or for a trap; the line names the process that owns the
// channel). A line of a 13 names no process as a rule, or else some process that had a context on
// the device, and not always the one that faulted.
//
// Numbers of the device, after which no program goes on, by the same list: 48 (memory lost two
// bits), 79 (the device fell off the bus), 95 (an error of its memory that reached others), 119 and
// 120 (its firmware does not answer, or failed). After 94 only the process that is named is hurt,
// and the device goes on.

#include "server/fault/kernel_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/log.h"
#include "server/loop/watch.h"

#define RECORD_MAX 8192

struct kernel_log {
	struct watch *watch;
	int fd; /* the watch's */
	kernel_log_fn *found;
	void *context;
};

/* The program's error for an exception of a multiprocessor, by the wording of the log. Any other
 * wording means a launch that failed. */
static const struct {
	const char *text;
	int32_t code;
} exceptions[] = {
	{"Misaligned", CUDA_ERROR_MISALIGNED_ADDRESS}, /* address, register, program counter */
	{"Out Of Range Address", CUDA_ERROR_ILLEGAL_ADDRESS},
	{"MMU Fault", CUDA_ERROR_ILLEGAL_ADDRESS},
	{"Invalid Constant Address", CUDA_ERROR_ILLEGAL_ADDRESS},
	{"Invalid Address Space", CUDA_ERROR_INVALID_ADDRESS_SPACE},
	{"Illegal Instruction", CUDA_ERROR_ILLEGAL_INSTRUCTION}, /* encoding, parameter */
	{"Stack Error", CUDA_ERROR_HARDWARE_STACK_ERROR},
	{"Stack Overflow", CUDA_ERROR_HARDWARE_STACK_ERROR},
	{"Invalid PC", CUDA_ERROR_INVALID_PC},
	{"PC Wrap", CUDA_ERROR_INVALID_PC},
	{"PC Overflow", CUDA_ERROR_INVALID_PC},
};

static int32_t exception_code(const char *text)
{
	for (size_t i = 0; i < sizeof(exceptions) / sizeof(*exceptions); i++)
		if (strstr(text, exceptions[i].text))
			return exceptions[i].code;
	return CUDA_ERROR_LAUNCH_FAILED;
}

int32_t kernel_log_code(unsigned number, const char *text)
{
	switch (number) {
	case 31:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case 13:
		return exception_code(text);
	case 43:
		return CUDA_ERROR_LAUNCH_FAILED;
	case 48:
	case 94:
	case 95:
		return CUDA_ERROR_ECC_UNCORRECTABLE;
	case 79:
	case 119:
	case 120:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	default:
		return CUDA_SUCCESS;
	}
}

enum xid_scope kernel_log_scope(unsigned number)
{
	switch (number) {
	case 94:
		return XID_CONTAINED;
	case 48:
	case 79:
	case 95:
	case 119:
	case 120:
		return XID_OF_DEVICE;
	default:
		return XID_OF_CONTEXT;
	}
}

/* The first line of an exception, which names only the multiprocessor. @rest: behind the number */
static bool is_warp_exception(const struct xid *xid, const char *rest)
{
	return xid->number == 13 && strncmp(rest, ", Graphics SM Warp Exception", 28) == 0;
}

/* "… faulted @ 0x7f12_34567000. …" */
static uint64_t address_of(const char *text)
{
	const char *at = strstr(text, "faulted @ 0x");
	unsigned high, low;

	if (!at || sscanf(at + 12, "%x_%x", &high, &low) != 2)
		return 0;
	return (uint64_t)high << 32 | low;
}

bool kernel_log_parse(const char *record, struct xid *ret_xid)
{
	const char *text = strchr(record, ';'), *number;
	struct xid xid = {0};
	char *end;

	/* At the very beginning: other lines may quote a program's text. */
	if (!text || strncmp(++text, "NVRM: Xid (", 11) != 0 || !(number = strstr(text, "): ")))
		return false;
	xid.number = (unsigned)strtoul(number + 3, &end, 10);
	/* The process follows right behind the number, or is missing. */
	if (strncmp(end, ", pid=", 6) == 0)
		xid.pid = (pid_t)strtol(end + 6, NULL, 10);
	xid.scope = kernel_log_scope(xid.number);
	xid.is_located =
		sscanf(text + 11, "PCI:%x:%x:%x", &xid.pci_domain, &xid.pci_bus, &xid.pci_device) == 3;
	xid.code = kernel_log_code(xid.number, end);
	xid.address = address_of(end);
	if (!xid.code || (xid.scope == XID_OF_CONTEXT && xid.pid <= 0 && !is_warp_exception(&xid, end)))
		return false;
	if (xid.pid < 0)
		xid.pid = 0;
	snprintf(xid.text, sizeof(xid.text), "%.*s", (int)strcspn(text + 6, "\n"), text + 6);
	*ret_xid = xid;
	return true;
}

/* Reads everything: a record per read; EPIPE means that older records were overwritten unread. */
static void on_readable(void *context)
{
	struct kernel_log *log = context;
	char record[RECORD_MAX];
	struct xid xid;
	ssize_t length;

	for (;;) {
		length = read(log->fd, record, sizeof(record) - 1);
		if (length < 0 && errno == EPIPE)
			continue;
		if (length == 0)
			log->watch = watch_free(log->watch);
		if (length <= 0)
			return;
		record[length] = '\0';
		if (kernel_log_parse(record, &xid))
			log->found(log->context, &xid);
	}
}

struct kernel_log *kernel_log_new(
	struct uv_loop_s *loop, const char *backend, kernel_log_fn *found, void *context)
{
	const char *chosen = getenv("FRMPS_KERNEL_LOG");
	const char *path = chosen ? chosen : strcmp(backend, backend_cuda.name) ? "" : "/dev/kmsg";
	struct kernel_log *log = *path ? calloc(1, sizeof(*log)) : NULL;

	if (!log)
		return NULL;
	*log = (struct kernel_log){.found = found, .context = context};
	log->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	/* Records that are there already belong to earlier times. In a FIFO there is nothing. */
	if (log->fd >= 0 && (lseek(log->fd, 0, SEEK_END) >= 0 || errno == ESPIPE))
		log->watch = watch_new(loop, log->fd, on_readable, log);
	else if (log->fd >= 0)
		close(log->fd);
	if (!log->watch) {
		log_info("the kernel log cannot be read (%s): faults are found by the driver's answers alone",
			strerror(errno));
		free(log);
		return NULL;
	}
	log_info("the kernel log is a witness of faults");
	return log;
}

struct kernel_log *kernel_log_free(struct kernel_log *log)
{
	if (log)
		watch_free(log->watch);
	free(log);
	return NULL;
}
