"""Words that people and tools use for the same thing."""

from toolpost.discovery.search.words import stem

_GROUPS = """
create add new make insert generate
delete remove drop erase destroy
update edit modify change patch
get fetch retrieve read obtain load
list enumerate browse
search find lookup query locate
send post deliver
message chat dm
email mail inbox
picture image photo
movie film cinema
song music track
video clip
file document doc
folder directory
repository repo
issue ticket bug
pr pull
weather forecast temperature climate
location place address city
map route direction navigation
price cost rate quote
stock share equity ticker
crypto cryptocurrency bitcoin coin
currency exchange forex
money payment pay
buy purchase order shop
product item goods
translate translation language
convert transform conversion
calculate compute calculation
schedule calendar appointment meeting event
task todo
note memo
reminder alarm
run execute invoke launch
start begin
stop end terminate halt kill
web website internet online page url
scrape crawl extract
download save
upload import
summarize summary
news headline article
flight airline airport
hotel accommodation lodging
restaurant food dining meal recipe
health medical doctor
job career employment vacancy
user account member profile
team group
database db sql table
code program script
log history
password secret credential
verify validate check
random arbitrary
game play
sport match football soccer
book novel library
car vehicle automobile
house property estate rental
company business firm
student course education learn
chart graph plot diagram
k8s kubernetes
postgres postgresql
js javascript
screenshot capture snapshot
reservation booking reserve
refund reimburse
invoice bill receipt
customer client
employee staff worker
channel room
comment reply
label tag
rename move
copy duplicate clone
compare diff difference
share invite
dictionary definition
joke humor funny
horoscope zodiac astrology
holiday vacation trip travel
domain dns whois
phone telephone mobile sms
tweet twitter
salary wage income
loan mortgage
wallet balance
deploy release publish
monitor metric
workflow pipeline automation
container docker
pdf document
spreadsheet excel sheet
slide presentation powerpoint deck
subtitle transcript caption
speech voice audio
"""

SYNONYMS: dict[str, frozenset[str]] = {}
"""From a word's basic form to those of its synonyms."""

for _line in _GROUPS.split("\n"):
    _group = frozenset(stem(word) for word in _line.split())
    for _word in _group:
        SYNONYMS[_word] = SYNONYMS.get(_word, frozenset()) | (_group - {_word})
