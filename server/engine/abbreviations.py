"""Words whose full stop may not end a sentence; all lower-case, without the last full stop."""

# ruff: noqa: SIM905
from __future__ import annotations

from typing import Final

TITLES: Final = frozenset(
    """
    mr mrs ms mx dr prof st ste gen rep sen gov capt cpt
    lt col cmdr sgt maj adm rev fr hon pres messrs mme mlle
    e.g eg i.e ie cf vs viz approx ca resp esp incl excl
    hr fr dipl ing z.b d.h u.a bzw vgl ggf evtl sog geb inkl exkl zzgl
    sra srta dra lic pág p.ej av avda m.m bv bijv dhr mevr
    sig sigg dott egr
    """.split()
)
"""A sentence never ends after these."""

BEFORE_NUMBER: Final = frozenset(
    """
    no nos nr num fig figs eq eqs sec secs ch chap vol vols p pp pg art arts par para tab ex ref refs
    ver abs kap abb bd s nº núm cap
    """.split()
)
"""A sentence does not end after these if a digit follows (``No. 5``)."""

INSIDE: Final = frozenset(
    """
    inc ltd co corp bros dept univ assn est jr sr al ph.d m.d b.a m.a b.sc m.sc ll.m esq
    mt ft ave blvd rd hwy
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun
    """.split()
)
"""A sentence ends after these, and after initials (``U.S.``), only if a word of :data:`STARTERS` follows."""

STARTERS: Final = frozenset(
    """
    the a an this that these those there here it he she we they you i its his her our their your my
    in on at by for from with without as if when while where after before since because although though
    but and or so yet however therefore meanwhile moreover then also still now once next finally first
    what who why how which whose is are was were do does did can could will would should may might
    no not yes let please some many most all each every both one two
    der die das ein eine es er sie wir ich aber und le la les un une il elle
    nous je mais et el los las una ella pero
    """.split()
)
"""Words that mostly begin a sentence when they are written with a capital."""

MONTHS: Final = frozenset(
    """
    januar jänner februar märz april mai juni juli august september oktober november dezember
    januari februari maart maj juli augusti oktober leden ledna února března dubna května
    června července srpna září října listopadu prosince stycznia lutego marca kwietnia maja czerwca lipca
    sierpnia września października listopada grudnia klasse jahrhundert jahrhunderts
    """.split()
)
"""What follows an ordinal number in languages that write it with a full stop (``3. Oktober``)."""
