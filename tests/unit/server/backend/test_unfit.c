// Which devices can be served (server/backend/cuda/device.c), on a driver of the test's own.

#include "server/backend/unfit.h"

#include "server/backend/cuda/cuda.h"
#include "tests/lib/suite.h"

/* The driver's answers about a device. */
static struct {
	int missing; /* the attribute that it does not have; 0: none */
	int mode;
	bool is_silent;
} given;

static CUresult device_attribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
	(void)device;
	if (given.is_silent)
		return CUDA_ERROR_UNKNOWN;
	*ret_value =
		attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE ? given.mode : (int)attribute != given.missing;
	return CUDA_SUCCESS;
}

static enum unfit ask(void)
{
	driver.device_attribute = device_attribute;
	return cuda_device_unfit(0);
}

TEST(unfit, a_whole_gpu_with_everything_is_served)
{
	ck_assert_int_eq(ask(), UNFIT_NOT);
	given.mode = CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
	ck_assert_int_eq(ask(), UNFIT_NOT);
}

TEST(unfit, the_reason_is_found)
{
	given.missing = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
	ck_assert_int_eq(ask(), UNFIT_VIRTUAL);
	given.missing = CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED;
	ck_assert_int_eq(ask(), UNFIT_REGISTRATION);
	given.mode = CU_COMPUTEMODE_PROHIBITED;
	ck_assert_int_eq(ask(), UNFIT_PROHIBITED);
	given.is_silent = true;
	ck_assert_int_eq(ask(), UNFIT_SILENT);
}

TEST(unfit, each_reason_has_words)
{
	for (unsigned i = UNFIT_NOT + 1; i < UNFITS; i++) {
		ck_assert_str_ne(unfit_text(i), "");
		ck_assert_str_ne(unfit_remedy(i), "");
	}
	ck_assert_str_eq(unfit_text(UNFIT_NOT), "");
	ck_assert_str_eq(unfit_text(UNFITS), "");
	ck_assert_str_eq(unfit_remedy(UNFITS), "");
}

int main(void)
{
	Suite *suite = suite_create("unfit");

	suite_add(suite_case(suite, "unfit"), "unfit");
	return suite_run(suite);
}
