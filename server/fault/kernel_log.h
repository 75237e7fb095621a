// The kernel log as a witness: the driver writes a line for each error of a channel (an Xid), tens
// of milliseconds to seconds before the process that owns the channel hears of it. Only lines that
// name a process are evidence. The first line, of an exception of a multiprocessor, names none as a
// rule, and is a sign of nothing. Errors of the device itself (device.h) name the device. A service
// that may not read the log, or runs where process numbers differ, does without. Daemon, loop
// thread.

#ifndef FRMPS_SERVER_FAULT_KERNEL_LOG_H
#define FRMPS_SERVER_FAULT_KERNEL_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct uv_loop_s;
struct kernel_log;

/* The scope of an error. */
enum xid_scope {
	XID_OF_CONTEXT, /* a kernel, or a channel */
	XID_CONTAINED,	/* the device's memory; only the named process has read the bad memory */
	XID_OF_DEVICE,	/* the device: nobody can rely on the device any more */
};

struct xid {
	unsigned number;
	enum xid_scope scope;
	bool is_located;			  /* the line names the device */
	unsigned pci_domain, pci_bus, pci_device; /* if located */
	pid_t pid;				  /* the process that owned the channel; 0: unknown */
	int32_t code;				  /* the program's CUresult */
	uint64_t address;			  /* that was accessed; 0: unknown */
	char text[160];				  /* from "Xid" on */
};

/**
 * Reads a record of /dev/kmsg.
 * Return: true if the record is an Xid that means the loss of a context or of a device.
 */
bool kernel_log_parse(const char *record, struct xid *ret_xid);

enum xid_scope kernel_log_scope(unsigned number);

/**
 * The CUresult that a program gets for an Xid that ends a context, or is of the device; 0 for all
 * others.
 * @text: the driver's text, may be empty
 */
int32_t kernel_log_code(unsigned number, const char *text);

/** Called for each such line that is written from now on. */
typedef void kernel_log_fn(void *context, const struct xid *xid);

/** Follows the kernel log. FRMPS_KERNEL_LOG names another file; an empty name means none. @backend:
 * others than the real driver do without, unless a file is named. Return: NULL where the log cannot
 * be read, after one line; not a failure of the service. */
struct kernel_log *kernel_log_new(
	struct uv_loop_s *loop, const char *backend, kernel_log_fn *found, void *context);
/** NULL is fine. Return: NULL. */
struct kernel_log *kernel_log_free(struct kernel_log *log);

#endif
