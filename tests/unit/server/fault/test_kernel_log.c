// Tests of server/fault/kernel_log.c: which lines are evidence, and against whom. The lines are a
// real driver's.

#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/fault/kernel_log.h"
#include "tests/lib/suite.h"

static const struct {
	const char *record;
	unsigned number;
	pid_t pid;
	int32_t code;
	uint64_t address;
} evidence[] = {
	{"4,933,26832759,-;NVRM: Xid (PCI:0000:00:06): 31, pid=468, name=exe, channel 0x0000000c, intr "
	 "00000000. MMU "
	 "Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x0_00000000. Fault is of type FAULT_PDE "
	 "ACCESS_TYPE_VIRT_WRITE\n",
		31, 468, CUDA_ERROR_ILLEGAL_ADDRESS, 0},
	{"4,939,1,-;NVRM: Xid (PCI:0000:00:06): 31, pid=469, name=exe, channel 0x0000000c, intr 00000000. "
	 "MMU "
	 "Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x7e12_0000f000. Fault is of type FAULT_PDE "
	 "ACCESS_TYPE_VIRT_WRITE\n",
		31, 469, CUDA_ERROR_ILLEGAL_ADDRESS, UINT64_C(0x7e120000f000)},
	{"4,940,35839102,-;NVRM: Xid (PCI:0000:00:06): 43, pid=561, name=exe, channel 0x0000000f\n", 43, 561,
		CUDA_ERROR_LAUNCH_FAILED, 0},
	{"4,941,1,-;NVRM: Xid (PCI:0000:00:06): 13, pid=709, name=exe, Graphics Exception: channel "
	 "0x0000000a, "
	 "Class 0000cbc0, Offset 00000510, Data 0017e2ac\n",
		13, 709, CUDA_ERROR_LAUNCH_FAILED, 0},
	/* Signs: nobody is named. */
	{"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 1): MMU "
	 "Fault\n",
		13, 0, CUDA_ERROR_ILLEGAL_ADDRESS, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 6, TPC 5, SM 0): "
	 "Misaligned Address\n",
		13, 0, CUDA_ERROR_MISALIGNED_ADDRESS, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 6, TPC 5, SM 0): Out "
	 "Of Range "
	 "Address\n",
		13, 0, CUDA_ERROR_ILLEGAL_ADDRESS, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 6, TPC 5, SM 0): "
	 "Illegal "
	 "Instruction Encoding\n",
		13, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 6, TPC 5, SM 0): Stack "
	 "Error\n",
		13, 0, CUDA_ERROR_HARDWARE_STACK_ERROR, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 6, TPC 5, SM 0): "
	 "Sandstorm\n",
		13, 0, CUDA_ERROR_LAUNCH_FAILED, 0},
};

TEST_LOOP(kernel_log, a_line_with_a_process_is_evidence, 0, sizeof(evidence) / sizeof(*evidence))
{
	struct xid xid;

	ck_assert(kernel_log_parse(evidence[_i].record, &xid));
	ck_assert_uint_eq(xid.number, evidence[_i].number);
	ck_assert_int_eq(xid.pid, evidence[_i].pid);
	ck_assert_int_eq(xid.scope, XID_OF_CONTEXT);
	ck_assert_int_eq(xid.code, evidence[_i].code);
	ck_assert_uint_eq(xid.address, evidence[_i].address);
	ck_assert_ptr_nonnull(strstr(xid.text, "Xid (PCI"));
	ck_assert_ptr_null(strchr(xid.text, '\n'));
}

static const char *const others[] = {
	"",
	"6,1,2,-;usb 1-1: new device\n",
	"4,1,2,-;NVRM: Xid (PCI",
	"4,940,1,-",
	/* what a program can have written of itself */
	"6,940,1,-;usb 1-1: Product: NVRM: Xid (PCI:0000:00:06): 43, pid=561, name=exe\n",
	/* what follows the first line of an exception */
	"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Global Exception on (GPC 1, TPC 7, SM 0): "
	"Multiple "
	"Warp Errors\n",
	"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics Exception: ESR 0x51c730=0x300000e\n",
	"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 13, pid='<unknown>', name=<unknown>, Graphics Exception\n",
	/* no fault of a context: a bad page, a fallen link */
	"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 63, pid=561, name=exe, Row Remapper\n",
	"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 43, channel 0x1, pid=561\n",
	"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 43, pid=0\n",
	"4,9,27,-;NVRM: Xid (PCI:0000:00:06): 43, pid=-5, name=exe\n",
	"4,9,27,-;NVRM: Xid (",
	"4,9,27,-;NVRM: Xid (PCI): ",
};

TEST_LOOP(kernel_log, other_lines_are_not, 0, sizeof(others) / sizeof(*others))
{
	struct xid xid;

	ck_assert(!kernel_log_parse(others[_i], &xid));
}

static const struct {
	const char *record;
	unsigned number;
	enum xid_scope scope;
	pid_t pid;
	int32_t code;
	bool is_located;
	unsigned domain, bus, device;
} devices[] = {
	{"4,9,27,-;NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
	 "bus.\n",
		79, XID_OF_DEVICE, 0, CUDA_ERROR_DEVICE_UNAVAILABLE, true, 0, 0x65, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0001:0a:1f): 48, pid=561, An uncorrectable double bit error (DBE) has been "
	 "detected\n",
		48, XID_OF_DEVICE, 561, CUDA_ERROR_ECC_UNCORRECTABLE, true, 1, 0xa, 0x1f},
	{"4,9,27,-;NVRM: Xid (PCI:0000:65:00): 94, pid=561, Contained: SM (0x1). RST: No, D-RST: No\n", 94,
		XID_CONTAINED, 561, CUDA_ERROR_ECC_UNCORRECTABLE, true, 0, 0x65, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0000:65:00): 95, pid='<unknown>', Uncontained: FBHUB. RST: Yes, D-RST: "
	 "No\n",
		95, XID_OF_DEVICE, 0, CUDA_ERROR_ECC_UNCORRECTABLE, true, 0, 0x65, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0000:65:00): 119, pid=-1, Timeout after 6s of waiting for RPC response "
	 "from GPU0 GSP!\n",
		119, XID_OF_DEVICE, 0, CUDA_ERROR_DEVICE_UNAVAILABLE, true, 0, 0x65, 0},
	{"4,9,27,-;NVRM: Xid (PCI:0000:65:00): 120, GSP task exception\n", 120, XID_OF_DEVICE, 0,
		CUDA_ERROR_DEVICE_UNAVAILABLE, true, 0, 0x65, 0},
	{"4,9,27,-;NVRM: Xid (GPU): 79, GPU has fallen off the bus.\n", 79, XID_OF_DEVICE, 0,
		CUDA_ERROR_DEVICE_UNAVAILABLE, false, 0, 0, 0},
};

TEST_LOOP(kernel_log, a_fault_of_the_device_is_told_with_the_device, 0, sizeof(devices) / sizeof(*devices))
{
	struct xid xid;

	ck_assert(kernel_log_parse(devices[_i].record, &xid));
	ck_assert_uint_eq(xid.number, devices[_i].number);
	ck_assert_int_eq(xid.scope, devices[_i].scope);
	ck_assert_int_eq(xid.pid, devices[_i].pid);
	ck_assert_int_eq(xid.code, devices[_i].code);
	ck_assert(xid.is_located == devices[_i].is_located);
	ck_assert(
		!xid.is_located || (xid.pci_domain == devices[_i].domain && xid.pci_bus == devices[_i].bus &&
					   xid.pci_device == devices[_i].device));
}

int main(void)
{
	Suite *suite = suite_create("kernel_log");
	TCase *cases = suite_case(suite, "kernel_log");

	suite_add(cases, "kernel_log");
	return suite_run(suite);
}
