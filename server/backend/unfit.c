// See unfit.h.

#include "server/backend/unfit.h"

static const struct {
	const char *text, *remedy;
} reasons[UNFITS] = {
	{"", ""},
#define UNFIT(name, text, remedy) {text, remedy},
#include "server/backend/unfit.def"
#undef UNFIT
};

const char *unfit_text(unsigned reason)
{
	return reason < UNFITS ? reasons[reason].text : "";
}

const char *unfit_remedy(unsigned reason)
{
	return reason < UNFITS ? reasons[reason].remedy : "";
}
