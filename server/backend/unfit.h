// Reasons why a device cannot be served (unfit.def), as far as the driver tells them before there
// is a context. Pure; any thread.

#ifndef FRMPS_SERVER_BACKEND_UNFIT_H
#define FRMPS_SERVER_BACKEND_UNFIT_H

enum unfit {
	UNFIT_NOT, /* the device can be served */
#define UNFIT(name, text, remedy) UNFIT_##name,
#include "server/backend/unfit.def"
#undef UNFIT
	UNFITS
};

/** A clause, "" for none. @reason: any number */
const char *unfit_text(unsigned reason);
/** The operator's remedy, in the imperative; "" for none. @reason: any number */
const char *unfit_remedy(unsigned reason);

#endif
