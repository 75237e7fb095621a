// See witnesses.h.

#include "server/daemon/witnesses.h"

#include <stdlib.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/daemon/device.h"
#include "server/fault/evidence.h"
#include "server/fault/kernel_log.h"
#include "server/fault/nvml.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/worker/worker.h"

/* An event of NVML so long after another report is about the same fault. */
#define KNOWN_US UINT64_C(2000000)

struct witnesses {
	struct kernel_log *kernel_log; /* NULL: not readable */
	struct nvml *nvml;	       /* NULL: not listened to */
	uint64_t logged_us;	       /* when the kernel log last reported a fault of the device */
};

static struct witnesses *of(struct daemon *daemon)
{
	if (!daemon->witnesses)
		daemon->witnesses = calloc(1, sizeof(*daemon->witnesses));
	log_bug_on(!daemon->witnesses);
	return daemon->witnesses;
}

/* A machine may have more devices, each with a service. */
static bool is_ours(const struct daemon *daemon, const struct xid *xid)
{
	const int32_t *attributes = daemon->device.attributes;

	return daemon->device_known && xid->is_located &&
	       (int32_t)xid->pci_domain == attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] &&
	       (int32_t)xid->pci_bus == attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] &&
	       (int32_t)xid->pci_device == attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
}

static void on_xid(void *context, const struct xid *xid)
{
	struct daemon *daemon = context;
	struct domain *domain;
	struct worker *worker;

	if (xid->scope != XID_OF_CONTEXT && !is_ours(daemon, xid)) {
		log_info("another device has a fault: %s", xid->text);
		return;
	}
	if (xid->scope != XID_OF_CONTEXT) {
		of(daemon)->logged_us = timer_now_us();
		device_take_xid(daemon, xid);
		return;
	}
	/* If the fault is of an executor of this service, the executor reports the session. */
	if (!xid->pid) {
		log_debug("some process on the device has a fault: %s", xid->text);
		return;
	}
	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			if (worker->pid == xid->pid)
				evidence_take_xid(worker, xid);
}

void witnesses_follow_log(struct daemon *daemon)
{
	of(daemon)->kernel_log = kernel_log_new(daemon->loop, daemon->heritage->backend, on_xid, daemon);
}

/* The kernel log is more specific, and earlier. */
static void on_nvml(void *context, const struct xid *xid)
{
	struct daemon *daemon = context;
	uint64_t logged_us = of(daemon)->logged_us;
	bool known = logged_us && timer_now_us() - logged_us < KNOWN_US;

	if (!known && xid->scope != XID_OF_CONTEXT)
		device_take_xid(daemon, xid);
	else
		log_info("%s: %s", xid->text,
			known ? "nothing new" : "some process on the device has a fault");
}

void witnesses_follow_device(struct daemon *daemon)
{
	/* The last executors may report ready during the shutdown. */
	if (daemon->phase != DAEMON_LEAVES && !daemon_is_drained(daemon) && !of(daemon)->nvml)
		of(daemon)->nvml = nvml_new(
			daemon->loop, daemon->heritage->backend, daemon->device.uuid, on_nvml, daemon);
}

bool witnesses_leave_device(struct daemon *daemon)
{
	struct witnesses *witnesses = of(daemon);

	if (!nvml_stop(witnesses->nvml))
		return false;
	witnesses->nvml = nvml_free(witnesses->nvml);
	return true;
}

void witnesses_dismiss(struct daemon *daemon)
{
	if (!daemon->witnesses)
		return;
	kernel_log_free(daemon->witnesses->kernel_log);
	nvml_free(daemon->witnesses->nvml);
	free(daemon->witnesses);
	daemon->witnesses = NULL;
}
